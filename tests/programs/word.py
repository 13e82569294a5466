"""A TCP service that answers each line with a word; or ends each connection at once, or never says anything: a version of a
program for tests of deploys."""
import os
import socketserver

WORD = "SAYS"


class Says(socketserver.StreamRequestHandler):
    def handle(self):
        if WORD == "closes":
            return
        for _ in self.rfile:
            if WORD != "mute":
                self.wfile.write(WORD.encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    request_queue_size = 128
    daemon_threads = True


Server((os.environ["HOST"], int(os.environ["PORT"])), Says).serve_forever()
