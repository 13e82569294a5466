"""A service that says what it is told of who asks: the profile, the id, and how old it is."""
import base64
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Wishes(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        told = self.headers.get("Coppice-Profile", "nothing")
        if told not in ("-", "nothing"):
            told = base64.urlsafe_b64decode(told + "=" * (-len(told) % 4)).decode()
        who, state = self.headers.get("Coppice-Profile-Id", "nobody"), self.headers.get("Coppice-Profile-State", "now")
        text = f"{who} {told} {state}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_): pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


Server((os.environ["HOST"], int(os.environ["PORT"])), Wishes).serve_forever()
