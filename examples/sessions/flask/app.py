"""What a visitor said, by Flask-Session as it is. Coppice gives HOST, PORT and COPPICE_SESSIONS_URL; the URL of a
Redis works as well."""
import os, time
from flask import Flask, jsonify, request, session
from flask_session import Session
from redis import Redis

app = Flask(__name__)
app.config.update(
    SECRET_KEY=os.environ.get("SESSION_SECRET", "change me"),
    SESSION_TYPE="redis",
    SESSION_REDIS=Redis.from_url(os.environ["COPPICE_SESSIONS_URL"]),
    SESSION_SERIALIZATION_FORMAT=os.environ.get("SESSION_FORMAT", "msgpack"),  # the default; "json" is merged as well
)
Session(app)


def shown():
    return jsonify({name: value for name, value in session.items() if not name.startswith("_")})


@app.get("/")
def index():
    return shown()


@app.get("/set/<field>/<value>")
@app.get("/drop/<field>")
def change(field, value=None):
    time.sleep(int(request.args.get("wait", 0)) / 1000)  # The session is read before, and pages take their time.
    if value is None: session.pop(field, None)
    else: session[field] = value
    return shown()


@app.get("/logout")
def logout():
    session.clear()
    return jsonify({})


@app.get("/health")
def health():
    return "ok\n"


if __name__ == "__main__":
    app.run(os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", 8000)), threaded=True)
