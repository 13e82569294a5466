"""A stream of jobs and a group of consumers, by redis-py, while a node dies: python3 groups.py URL [URL ...], one of each node.
Prints `half` when half of the jobs are done, and at the end that each was acknowledged once."""
import sys
import threading
import time
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

urls, jobs = sys.argv[1:], 240
lock, acked, maybe, doubled = threading.Lock(), set(), set(), []
done = threading.Event()


def connect(url):
    # It is asked again here, where it is counted.
    retry = Retry(NoBackoff(), 0)
    return redis.from_url(url, protocol=3, decode_responses=True, socket_timeout=5, socket_connect_timeout=2, retry=retry)


def asked(at, ask):
    """What came of it, at the node of this number or, while that one says nothing of use, at the next."""
    until = time.monotonic() + 60
    while True:
        try:
            return ask(clients[at[0] % len(clients)]), False
        except (redis.ConnectionError, redis.TimeoutError):
            sure = False
        except redis.ResponseError as error:
            if str(error).startswith("The ID specified in XADD is equal or smaller"):
                return None, True
            if not any(word in str(error) for word in ("BUSY", "UNKNOWN", "TRYAGAIN", "retry", "UNBLOCKED", "may have happened")):
                raise
        if time.monotonic() > until:
            raise SystemExit("no node answers")
        at[0] += 1
        time.sleep(0.05)


def produce():
    at = [0]
    for n in range(1, jobs + 1):
        # With an id of its own a job that is asked twice is there once.
        asked(at, lambda client: client.xadd("jobs", {"n": n}, id=f"{n}-1"))


def ack(at, name, entry):
    tries = 0

    def once(client):
        nonlocal tries
        tries += 1
        return client.xack("jobs", "workers", entry)

    count, _ = asked(at, once)
    with lock:
        if count == 1:
            if entry in acked:
                doubled.append(entry)
            acked.add(entry)
        elif tries > 1:
            # Asked again, as nobody knew what had come of it.
            maybe.add(entry)
        total = len(acked | maybe)
    if total == jobs // 2:
        print("half", flush=True)
    if total == jobs:
        done.set()


def work(number):
    at, name = [number], f"worker-{number}"
    while not done.is_set():
        got, _ = asked(at, lambda client: client.xreadgroup("workers", name, {"jobs": ">"}, count=3, block=500))
        entries = [entry for streams in (got or {}).values() for page in streams for entry in page]
        # What was given to somebody who did not hear of it.
        claimed, _ = asked(at, lambda client: client.xautoclaim("jobs", "workers", name, 1500, count=5))
        for entry, _ in entries + claimed[1]:
            time.sleep(0.005)
            ack(at, name, entry)


clients = [connect(url) for url in urls]
clients[0].xgroup_create("jobs", "workers", id="0", mkstream=True)
threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
threads.append(threading.Thread(target=produce, daemon=True))
for thread in threads:
    thread.start()
if not done.wait(90):
    raise SystemExit(f"only {len(acked)} of {jobs} are done, and {len(maybe - acked)} perhaps")
at = [0]
(length, _), (pending, _) = asked(at, lambda c: c.xlen("jobs")), asked(at, lambda c: c.xpending("jobs", "workers"))
groups, _ = asked(at, lambda c: c.xinfo_groups("jobs"))
assert length == jobs and pending["pending"] == 0 and groups[0]["lag"] == 0, (length, pending, groups)
assert not doubled and acked | maybe == {f"{n}-1" for n in range(1, jobs + 1)}, (doubled, len(acked), len(maybe))
print(f"each of {jobs} jobs was acknowledged once")
