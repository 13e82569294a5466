"""Sessions that the edge carries: the program gets each visitor's notes with the request and returns the new ones with
its answer. It sets no cookie, knows no store and keeps nothing. Python's standard library alone.

    Coppice-Session          with the request: `-` (no session yet), base64url of the value, or `*` (large: fetch it)
    Coppice-Session          with the answer:  base64url of the new value, or `-` to end the session
    Coppice-Session-Handle   for values over 4096 bytes: GET and PUT $COPPICE_NODE_API/v1/session/HANDLE
"""
import base64, json, os, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

API, HEADER_BYTES = os.environ.get("COPPICE_NODE_API", ""), 4096


class Guestbook(BaseHTTPRequestHandler):
    protocol_version, wbufsize = "HTTP/1.1", -1

    def do_GET(self):
        if self.path == "/health": return self.answer(200, {"ok": True})
        seen = {name.lower(): value for name, value in self.headers.items()}
        if self.path == "/headers": return self.answer(200, seen)
        self.answer(200, self.load())

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if self.path == "/logout": return self.answer(200, {"notes": []}, {"Coppice-Session": "-"})
        if self.path == "/bad": return self.answer(200, {}, {"Coppice-Session": "not base64url!"})
        notes = self.load()
        notes["notes"].append(body)
        fields = self.store(notes)
        if self.path == "/login": fields["Coppice-Session-Renew"] = "1"  # a new id: what was planted before is worthless
        self.answer(200, {"notes": len(notes["notes"]), "clone": os.environ.get("COPPICE_CLONE", "")}, fields)

    def load(self):
        """The session of this request, as the edge gave it."""
        said = self.headers.get("Coppice-Session", "-")
        if said == "-": return {"notes": []}
        if said == "*":
            with urllib.request.urlopen(self.local(), timeout=5) as reply: return json.load(reply)
        return json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)))

    def store(self, value):
        """The fields of an answer that keep the value."""
        data = json.dumps(value).encode()
        if len(data) <= HEADER_BYTES:
            return {"Coppice-Session": base64.urlsafe_b64encode(data).decode().rstrip("=")}
        put = urllib.request.Request(self.local(), data=data, method="PUT")
        with urllib.request.urlopen(put, timeout=5) as reply:
            return {"Coppice-Session-Handle": json.load(reply)["handle"]}

    def local(self):
        return f"{API}/v1/session/{self.headers['Coppice-Session-Handle']}"

    def answer(self, status, value, fields=()):
        body = (json.dumps(value) + "\n").encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name in fields: self.send_header(name, fields[name])
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_): pass


ThreadingHTTPServer.request_queue_size = 512
ThreadingHTTPServer((os.environ.get("HOST", "127.0.0.1"), int(os.environ["PORT"])), Guestbook).serve_forever()
