"""The smallest shop on Coppice: a cart that survives the death of any node. Python's standard library alone.

Coppice gives the program HOST and PORT to listen on, and COPPICE_CARTS_URL to reach the namespace "carts" by the
Redis protocol. The program keeps nothing itself: any clone serves any visitor.
"""
import json, os, secrets, socket, threading
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

URL, ME, local = urlsplit(os.environ["COPPICE_CARTS_URL"]), os.environ.get("COPPICE_CLONE", "cart"), threading.local()
WARES = ["apple", "bread", "cheese", "honey", "walnut"]


def redis(*words):
    """One command of the Redis protocol; a connection for each thread, opened anew if it broke."""
    frame = b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in (str(w).encode() for w in words))
    for attempt in (1, 2):
        try:
            if not getattr(local, "file", None):
                local.file = socket.create_connection((URL.hostname, URL.port), 5).makefile("rwb")
                redis("AUTH", URL.username, URL.password)
            local.file.write(b"*%d\r\n" % len(words) + frame)
            local.file.flush()
            head = local.file.readline()
            if head[:1] in b"-": raise RuntimeError(head.decode().strip() or "connection closed")
            if head[:1] == b"$":
                return None if head == b"$-1\r\n" else local.file.read(int(head[1:]) + 2)[:-2]
            return head[1:-2]
        except (OSError, RuntimeError):
            local.file = None
            if attempt == 2: raise


class Shop(BaseHTTPRequestHandler):
    protocol_version, wbufsize = "HTTP/1.1", -1  # buffered: one segment an answer, not one a header

    def do_GET(self):
        if self.path == "/health": return self.answer(200, "ok\n", "text/plain")
        sid, cart = self.cart()
        if urlsplit(self.path).path == "/cart.json":
            return self.answer(200, json.dumps({"cart": cart, "clone": ME}) + "\n", "application/json", sid)
        rows = "".join(f"<li>{escape(w)}: {n}</li>" for w, n in sorted(cart.items())) or "<li>nothing yet</li>"
        buttons = "".join(f'<button name="ware" value="{w}">add {w}</button> ' for w in WARES)
        page = (f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Shop</title><h1>Shop</h1>'
                f'<form method="post" action="/add">{buttons}</form><h2>Your cart</h2><ul>{rows}</ul>'
                f'<p>Served by clone {escape(ME)}. Kill it, or any node, and go on: '
                f'<a href="/?sid={escape(sid)}">this cart</a> is the same through every node.</p></html>')
        self.answer(200, page, "text/html; charset=utf-8", sid)

    def do_POST(self):
        form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        ware = parse_qs(form).get("ware", [""])[0]
        if self.path != "/add" or not 0 < len(ware) <= 40: return self.answer(400, "POST /add ware=NAME\n", "text/plain")
        sid, cart = self.cart()
        cart[ware] = cart.get(ware, 0) + 1
        redis("SET", sid, json.dumps(cart), "EX", 3600)
        self.answer(303, "", "text/plain", sid)

    def cart(self):
        cookies = dict(c.strip().split("=", 1) for c in self.headers.get("Cookie", "").split(";") if "=" in c)
        asked = parse_qs(urlsplit(self.path).query).get("sid", [""])[0]  # a browser's cookie is for one host alone
        sid = asked[:64] or cookies.get("sid") or secrets.token_urlsafe(16)
        return sid, json.loads(redis("GET", sid) or "{}")

    def answer(self, status, text, kind, sid=None):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        if sid: self.send_header("Set-Cookie", f"sid={sid}; Path=/; HttpOnly; SameSite=Lax")
        if status == 303: self.send_header("Location", "/")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_): pass


ThreadingHTTPServer.request_queue_size = 512
ThreadingHTTPServer((os.environ.get("HOST", "127.0.0.1"), int(os.environ["PORT"])), Shop).serve_forever()
