"""A service that does what it is told to its machine and says how that went: `POST /read`, `/list`, `/write`, `/signal`, `/run`
with a path, a process id or a program as body, `/files` with a number; `/who` tells its user, `/environment` names, `/own` tells its temporary folder, its working folder and its process id."""
import os
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def write(path):
    with open(path, "w") as file:
        file.write("was here")
    return "written"


WAYS = {
    "read": lambda path: open(path, "rb").read().decode("latin-1"),
    "list": lambda path: " ".join(os.listdir(path)),
    "write": write,
    "signal": lambda pid: os.kill(int(pid), 0) or "signalled",
    "run": lambda program: subprocess.run([program, "--version"], check=True) and "ran",
    "files": lambda count: len([open("/dev/null") for _ in range(int(count))]) and "opened",
    "who": lambda _: f"{os.getuid()} {os.environ['USER']}",
    "environment": lambda _: " ".join(os.environ),
    "own": lambda _: "\n".join([os.environ["TMPDIR"], os.getcwd(), str(os.getpid())]),
}


class Reach(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(200, "well")

    def do_POST(self):
        given = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        try:
            self.answer(200, WAYS[self.path.rsplit("/", 1)[1]](given))
        except Exception as e:
            self.answer(403 if isinstance(e, PermissionError) else 400, repr(e))

    def answer(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_): pass


ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Reach).serve_forever()
