"""A page in headless Chromium, looked at while it lives: python3 browser.py PROFILE-FOLDER URL

Then each line of standard input is a JavaScript expression. It is evaluated in that one page, which is never loaded
again, until it is true; the answer is a line `ok SECONDS`, or after 20 s `no` with the text that the page shows. A line
`key Enter` presses a key of the keyboard (Enter, Escape, Tab), `type TEXT` types, `width 360` makes the screen so many
pixels wide (0: as it was), `scripts off` loads it anew without scripts, each answered in the same way. Speaks the DevTools protocol over two pipes (descriptors 3 and 4), messages end with a zero byte. Standard library alone.
"""
import json, os, subprocess, sys, time

profile, url = sys.argv[1:]
flags = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --remote-debugging-pipe""".split()
ours_read, theirs_write = os.pipe()
theirs_read, ours_write = os.pipe()
for fd in (theirs_read, theirs_write):
    os.set_inheritable(fd, True)
shell = f'exec "$@" 3<&{theirs_read} 4>&{theirs_write}'
browser = subprocess.Popen(["sh", "-c", shell, "sh", "chromium", *flags, f"--user-data-dir={profile}", "about:blank"],
                           close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
os.close(theirs_read), os.close(theirs_write)
replies, number = os.fdopen(ours_read, "rb"), 0


def call(method, session=None, **params):
    global number
    number += 1
    message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
    os.write(ours_write, json.dumps(message).encode() + b"\0")
    while True:
        bytes = b""
        while not bytes.endswith(b"\0"):
            byte = replies.read(1)
            if not byte: raise SystemExit("the browser has ended")
            bytes += byte
        reply = json.loads(bytes[:-1])
        if reply.get("id") == number:
            if "error" in reply: raise SystemExit(f"{method}: {reply['error']}")
            return reply["result"]


def evaluate(expression):
    result = call("Runtime.evaluate", session, expression=expression, returnByValue=True)
    return result["result"].get("value")


def press(key):
    code = {"Enter": 13, "Escape": 27, "Tab": 9}[key]
    text = {"text": "\r"} if key == "Enter" else {}
    call("Input.dispatchKeyEvent", session, type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **text)
    call("Input.dispatchKeyEvent", session, type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)


try:
    target = call("Target.createTarget", url=url)["targetId"]
    session = call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for line in sys.stdin:
        begun = time.monotonic()
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "key":
            press(rest), print("ok 0", flush=True)
            continue
        if word == "type":
            call("Input.insertText", session, text=rest), print("ok 0", flush=True)
            continue
        if word == "width":
            call("Emulation.setDeviceMetricsOverride", session, width=int(rest), height=0, deviceScaleFactor=0, mobile=False)
            print("ok 0", flush=True)
            continue
        if word == "scripts":
            call("Emulation.setScriptExecutionDisabled", session, value=rest == "off")
            call("Page.reload", session)
            print("ok 0", flush=True)
            continue
        while not (is_so := evaluate(line)) and time.monotonic() - begun < 20:
            time.sleep(0.05)
        text = evaluate("document.body.innerText")
        print(f"ok {time.monotonic() - begun:.2f}" if is_so else f"no {json.dumps(text)}", flush=True)
finally:
    browser.terminate()
    browser.wait()
