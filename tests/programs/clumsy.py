"""A service that dies while it has a request, for tests of what is tried again and what is not. NOTES is its notebook,
which outlives it: a line for each request that reached a clone."""
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def note(line):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(line + "\n")


class Clumsy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path != "/health":
            first = not os.path.exists(os.environ["NOTES"] + ".fell")
            note(f"GET {self.path} {os.environ['COPPICE_CLONE']}")
            if self.path == "/fall" and first:
                open(os.environ["NOTES"] + ".fell", "w").close()
                os._exit(9)
        self.answer(200)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        note(f"POST {self.path} {os.environ['COPPICE_CLONE']}")
        if self.path == "/fall":
            os._exit(9)
        self.answer(200)

    def answer(self, status):
        text = f"{os.environ['COPPICE_CLONE']}\n".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_): pass


ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Clumsy).serve_forever()
