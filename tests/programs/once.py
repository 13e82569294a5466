"""A service that ends each connection after one answer, so that each request needs a new one."""
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Once(BaseHTTPRequestHandler):
    def do_GET(self):
        text = f"{os.environ['COPPICE_CLONE']}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_): pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


Server((os.environ["HOST"], int(os.environ["PORT"])), Once).serve_forever()
