"""Somebody with a node's certificate opens a tunnel and asks what lies behind it; prints the answer's status, or why there is none.

tunnel.py FOLDER-OF-THE-NODE ADDRESS:PORT TARGET METHOD PATH [TOKEN]
"""
import http.client
import socket
import ssl
import sys

folder, peer, target, method, path, *token = sys.argv[1:]
host, port = peer.rsplit(":", 1)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
# Who answers is not what is asked here.
tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
tls.load_cert_chain(f"{folder}/node.pem", f"{folder}/node.key")
stream = socket.create_connection((host, int(port)), timeout=20)
stream.sendall(b"COP1T")
stream = tls.wrap_socket(stream)
stream.sendall(bytes([len(target)]) + target.encode())
opened = stream.recv(1)
if opened != b"\0":
    sys.exit(print(f"not opened: {opened!r}"))
asked = http.client.HTTPConnection(host)
asked.sock = stream
headers = {"Authorization": f"Bearer {token[0]}"} if token else {}
asked.request(method, path, b"#!/bin/sh\n" if method == "PUT" else None, headers)
print(asked.getresponse().status)
