"""A service that knows functions for values of class linear (docs/guide/linear.md), with Python's own library and no other.
Beside those that do sums there are some that do harm, for tests."""
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def add(count, n):
    count = int(count or 0) + int(n)
    return str(count), count


def withdraw(count, n):
    left = int(count or 0) - int(n)
    if left < 0:
        raise ValueError("not enough")
    return (str(left) if left else None), left


def twice(_count, *args):
    return "twice", [list(args), {"of": len(args)}, None, 1.5]


def crash(_count):
    os._exit(1)


FUNCTIONS = {f.__name__: f for f in (add, withdraw, twice, crash)}
ASKED = 0


def answer(question):
    value, replies = question.get("value"), []
    for call in question["calls"]:
        try:
            value, result = FUNCTIONS[call["function"]](value, *call["args"])
            replies.append({"result": result})
        except KeyError:
            replies.append({"error": "there is none of this name"})
        except Exception as why:
            replies.append({"error": str(why)})
    return {"value": value, "replies": replies}


class Teller(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self):
        self.say(200, str(ASKED))

    def do_POST(self):
        global ASKED
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/.coppice/functions":
            return self.say(404, "")
        ASKED += 1
        if self.headers["Authorization"] != "Bearer " + os.environ["COPPICE_TOKEN"]:
            return self.say(401, "only nodes ask here")
        question = json.loads(body)
        names = {call["function"] for call in question["calls"]}
        if "nonsense" in names:
            return self.say(200, "<html>")
        if "fail" in names:
            return self.say(500, "it failed")
        self.say(200, json.dumps(answer(question)))

    def say(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_): pass


ThreadingHTTPServer.request_queue_size = 128
ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Teller).serve_forever()
