"""A worker of form "stream": gives what it gets in capitals. What goes over the pipes: docs/guide/workers.md."""
import json
import sys

given, made = sys.stdin.buffer, sys.stdout.buffer
while line := given.readline():
    job = json.loads(line)
    text = given.read(job["bytes"]).decode(errors="replace").upper().encode()
    made.write(json.dumps({"id": job["id"], "end": "done", "bytes": len(text)}).encode() + b"\n" + text)
    made.flush()
