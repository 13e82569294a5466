"""Mail clients of Python's own library, for the test of the built-in mail: prints JSON lines."""
import concurrent.futures
import json
import poplib
import smtplib
import sys
import time


def at(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def letter(name, body="words"):
    lines = [f"Message-ID: <{name}@test>", "From: eve@elsewhere.test", "To: ann@mail.test", f"Subject: {name}", "", body, ".dot", ""]
    return "\r\n".join(lines).encode()


def send(server, name, to, sender="eve@elsewhere.test"):
    with smtplib.SMTP(*at(server), local_hostname="client.test", timeout=20) as smtp:
        smtp.sendmail(sender, to, letter(name))


def loop(servers, to):
    """Sends for ever, through one server after the other, and says what was answered 250."""
    number = 0
    while True:
        name = f"loop-{number}"
        for attempt in range(600):
            try:
                send(servers[(number + attempt) % len(servers)], name, [to])
                break
            except (OSError, smtplib.SMTPException):
                time.sleep(0.05)
        else:
            sys.exit(f"{name} was taken nowhere")
        print(json.dumps(name), flush=True)
        number += 1


def opened(server, user, password):
    pop = poplib.POP3(*at(server), timeout=20)
    try:
        pop.user(user)
        pop.pass_(password)
    except poplib.error_proto:
        pop.close()
        raise
    return pop


def read(server, user, password, delete=False):
    """All messages: their ids and their subjects."""
    pop = opened(server, user, password)
    ids = dict(line.decode().split(" ") for line in pop.uidl()[1])
    sizes = dict(line.decode().split(" ") for line in pop.list()[1])
    found = []
    for number in ids:
        lines = pop.retr(int(number))[1]
        text = b"\r\n".join(lines) + b"\r\n"
        assert len(text) == int(sizes[number]), (len(text), sizes[number])
        subject = next(line for line in lines if line.lower().startswith(b"subject:"))
        found.append({"id": ids[number], "subject": subject.decode()[9:], "text": text.decode()})
        if delete:
            pop.dele(int(number))
    pop.quit()
    print(json.dumps(found))


def guess(address, count, servers):
    """Tries wrong passwords, at all servers at once; what each try was told."""

    def tries(number):
        try:
            opened(servers[number % len(servers)], address, f"wrong-{number}").quit()
            return "in"
        except poplib.error_proto as refused:
            return refused.args[0].decode()

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        print(json.dumps(list(pool.map(tries, range(count)))))


def main():
    what, rest = sys.argv[1], sys.argv[2:]
    if what == "loop":
        loop(rest[1:], rest[0])
    elif what == "send":
        try:
            send(rest[0], rest[1], rest[2:])
            print(json.dumps("taken"))
        except smtplib.SMTPRecipientsRefused as refused:
            print(json.dumps([code for code, _ in refused.recipients.values()]))
    elif what in ("read", "empty"):
        read(*rest, delete=what == "empty")
    elif what == "guess":
        guess(rest[0], int(rest[1]), rest[2:])
    elif what == "login":
        try:
            opened(*rest).quit()
            print(json.dumps("in"))
        except poplib.error_proto as refused:
            print(json.dumps(refused.args[0].decode()))


main()
