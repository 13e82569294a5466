"""A service that answers one request after the other, each after TAKES_MS: a clone does so many a second and no more."""
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

turn = Lock()


class Slow(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path != "/health":
            with turn:
                time.sleep(int(os.environ["TAKES_MS"]) / 1000)
        text = f"{os.environ['COPPICE_CLONE']}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_): pass


ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Slow).serve_forever()
