"""A worker of form "stream": a page of the parts that a step of a pipeline has gathered, and of what is missing."""
import base64
import html
import json
import sys

given, made = sys.stdin.buffer, sys.stdout.buffer
while line := given.readline():
    job = json.loads(line)
    gathered = json.loads(given.read(job["bytes"]))
    page = ""
    for part in gathered["parts"]:
        text = part["text"] if "text" in part else "%d bytes" % len(base64.b64decode(part["base64"]))
        page += "<h2>%s</h2><pre>%s</pre>\n" % (part["name"], html.escape(text))
    for name in gathered["missing"]:
        page += "<h2>%s</h2><p>is not there now</p>\n" % name
    page = page.encode()
    made.write(json.dumps({"id": job["id"], "end": "done", "bytes": len(page)}).encode() + b"\n" + page)
    made.flush()
