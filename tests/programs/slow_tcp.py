"""A TCP service that answers one connection after the other, each TAKES_MS after its first line: a clone does so many a second and no
more. A line "wait" it never answers; until then, the connection is silent."""
import os
import time
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Lock

turn = Lock()


class Slow(StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            if line.strip() == b"wait":
                continue
            with turn:
                time.sleep(int(os.environ["TAKES_MS"]) / 1000)
            self.wfile.write(f"{os.environ['COPPICE_CLONE']}\n".encode())


class Server(ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 512


Server((os.environ["HOST"], int(os.environ["PORT"])), Slow).serve_forever()
