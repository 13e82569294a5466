"""Mail clients of Python's own library, for the test of the built-in mail: prints JSON lines."""
import concurrent.futures
import hashlib
import json
import poplib
import smtplib
import ssl
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


def large(server, name, to, mib, says_size):
    """Sends a message of so many MiB; what it was told, and the digest of its text."""
    line = b"0123456789abcdef" * 4 + b"\r\n"
    text = b"%b\r\n" % name.encode() + line * (int(mib) * 2**20 // len(line))
    with smtplib.SMTP(*at(server), local_hostname="client.test", timeout=60) as smtp:
        smtp.ehlo()
        size = [f"SIZE={len(text)}"] if says_size else []
        code, _ = smtp.mail("eve@elsewhere.test", size)
        if code == 250:
            smtp.rcpt(to)
            code, _ = smtp.data(letter(name, "").removesuffix(b".dot\r\n") + text)
    print(json.dumps([code, hashlib.sha256(text).hexdigest()]))


def digest(server, user, password, name):
    """Takes the messages with this subject out of the mailbox: the digest of the text of each."""
    pop = opened(server, user, password)
    digests = []
    for number in range(1, pop.stat()[0] + 1):
        if f"Subject: {name}".encode() in pop.top(number, 0)[1]:
            lines = pop.retr(number)[1]
            text = lines[lines.index(b"") + 2 :]
            pop.dele(number)
            digests.append(hashlib.sha256(b"".join(line + b"\r\n" for line in text)).hexdigest())
    pop.quit()
    print(json.dumps(digests))


def secure(smtp, pop3, pop3s, user, password, name):
    """Sends by STARTTLS, reads by STLS and by TLS from the first byte on: how many messages each way shows."""
    nobody = ssl._create_unverified_context()
    with smtplib.SMTP(*at(smtp), local_hostname="client.test", timeout=20) as session:
        session.starttls(context=nobody)
        session.sendmail("eve@elsewhere.test", [user], letter(name))
    later, first = poplib.POP3(*at(pop3), timeout=20), poplib.POP3_SSL(*at(pop3s), timeout=20, context=nobody)
    later.stls(nobody)
    counts = []
    for pop in (later, first):
        pop.user(user)
        pop.pass_(password)
        counts.append(pop.stat()[0])
        pop.quit()
    print(json.dumps(counts))


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


def stays(server, user, password):
    """Logs in and goes on asking; says when it is in, and what it was told at the end."""
    pop = opened(server, user, password)
    print(json.dumps("in"), flush=True)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            pop.noop()
        except poplib.error_proto as refused:
            return print(json.dumps(refused.args[0].decode()))
        time.sleep(0.2)
    print(json.dumps("still in"))


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
    elif what == "large":
        large(*rest, says_size=True)
    elif what == "large-unsaid":
        large(*rest, says_size=False)
    elif what == "digest":
        digest(*rest)
    elif what in ("read", "empty"):
        read(*rest, delete=what == "empty")
    elif what == "secure":
        secure(*rest)
    elif what == "stays":
        stays(*rest)
    elif what == "guess":
        guess(rest[0], int(rest[1]), rest[2:])
    elif what == "login":
        try:
            opened(*rest).quit()
            print(json.dumps("in"))
        except poplib.error_proto as refused:
            print(json.dumps(refused.args[0].decode()))


main()
