"""A service that says one word, or fails whenever it is asked for it: a version of a program for tests of deploys."""
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Says(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        status = 500 if FAILS and self.path != "/health" else 200
        text = b"SAYS\n"
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_): pass


ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Says).serve_forever()
