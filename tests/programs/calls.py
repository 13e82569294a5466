"""A service that asks another one (ASKS) for each request, through the edge, and passes on what that one is to know of it."""
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen


class Calls(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200 if self.path == "/health" else self.asked())
        self.send_header("Content-Length", "0")
        self.end_headers()

    def asked(self):
        names = ("Coppice-Ticket", "Coppice-Deadline-Ms")
        fields = {name: self.headers[name] for name in names if name in self.headers}
        try:
            with urlopen(Request(os.environ["ASKS"], headers=fields), timeout=10) as answer:
                return answer.status
        except HTTPError as refused:
            return refused.code

    def log_message(self, *_): pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128


Server((os.environ["HOST"], int(os.environ["PORT"])), Calls).serve_forever()
