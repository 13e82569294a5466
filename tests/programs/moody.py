"""A service whose clones answer users badly on demand: a clone fails everybody but its probe while the file that MOODS and
its number name is there; if it is not empty, it answers well after 0.3 s of work (clones may not read it, only see it). `/health` is always well."""
import os, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

mood = os.environ["MOODS"] + os.environ["COPPICE_CLONE"].rpartition("/")[2]


class Moody(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        is_there = self.path != "/health" and os.path.exists(mood)
        slow = is_there and os.path.getsize(mood) > 0
        fails, until = is_there and not slow, time.monotonic() + 0.3
        while slow and time.monotonic() < until: pass
        text = f"{os.environ['COPPICE_CLONE']}\n".encode()
        self.send_response(500 if fails else 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_): pass


ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Moody).serve_forever()
