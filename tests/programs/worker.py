"""A worker of form "stream" that does what the content says: `crash`, `socket`, `wait`, `bad`; else it gives it in capitals."""
import json
import os
import socket
import sys
import time

given, made = sys.stdin.buffer, sys.stdout.buffer


def answer(job, end, text):
    made.write(json.dumps({"id": job["id"], "end": end, "bytes": len(text)}).encode() + b"\n" + text)
    made.flush()


while line := given.readline():
    job = json.loads(line)
    content = given.read(job["bytes"])
    if content.startswith(b"crash"):
        os._exit(3)
    elif content == b"socket":
        try:
            socket.socket()
            answer(job, "done", b"it has one")
        except OSError as error:
            answer(job, "done", str(error.errno).encode())
    elif content.startswith(b"wait"):
        with open(os.environ["STARTED"], "a") as started:
            started.write("%d\n" % os.getpid())
        while not os.path.exists(os.environ["GO"]):
            time.sleep(0.01)
        answer(job, "done", content.upper())
    elif content == b"bad":
        answer(job, "bad", b"")
    else:
        answer(job, "done", content.upper())
