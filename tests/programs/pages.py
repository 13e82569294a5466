"""Pages that say how they may be kept, by their path, and how often the clone was asked for each. While the file that GONE names is
there no clone starts."""

import os
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

if os.path.exists(os.environ["GONE"]):
    sys.exit(1)
asked = Counter()
lock = threading.Lock()


class Pages(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.path
        with lock:
            asked[path] += 1
            count = asked[path]
        if path.startswith("/slow"):
            time.sleep(0.5)
        body = f"{os.getpid()} {count}".encode()
        self.send_response(200)
        if path != "/health":
            lasts = "1" if path.startswith("/short") else "600"
            self.send_header("Cache-Control", f"max-age={lasts}, stale-if-error=600")
            self.send_header("Cache-Tag", "pages, of" + path.replace("/", "-"))
            self.send_header("ETag", f'"{os.getpid()}-{count}"')
        if path.startswith("/mine"):
            self.send_header("Set-Cookie", "id=1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128


Server((os.environ["HOST"], int(os.environ["PORT"])), Pages).serve_forever()
