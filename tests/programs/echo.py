"""A TCP service: says each line back in capitals."""
import os
import socketserver


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line.upper())


class Server(socketserver.ThreadingTCPServer):
    request_queue_size = 128


Server((os.environ["HOST"], int(os.environ["PORT"])), Echo).serve_forever()
