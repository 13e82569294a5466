"""Redis' Python client: what changes at one node is told at another, to who listens and to who keeps values of its own."""

import sys
import time

import redis
from redis.cache import CacheConfig

bank_reader, bank_writer, floor_reader, floor_writer = sys.argv[1:]


def until(what, holds, within=20):
    end = time.monotonic() + within
    while True:
        try:
            if holds():
                return
        except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError) as error:
            what = f"{what}: {error}"[:500]
        assert time.monotonic() < end, what
        time.sleep(0.02)


def heard(listener, wanted):
    """Messages until all that are wanted have come, in their order."""
    left, end = list(wanted), time.monotonic() + 20
    while left:
        assert time.monotonic() < end, left
        message = listener.get_message(timeout=1)
        if message and message["type"] == "pmessage" and (message["channel"], message["data"]) == left[0]:
            left.pop(0)


def check(reader_url, writer_url, is_linear):
    writer = redis.Redis.from_url(writer_url, retry=None)
    until("it is open", lambda: writer.set("cart:0", "0"))
    kept = redis.Redis.from_url(reader_url, protocol=3, cache_config=CacheConfig())
    listener = redis.Redis.from_url(reader_url).pubsub()
    assert kept.config_set("notify-keyspace-events", "KEA")
    until("it may listen", lambda: listener.psubscribe("__keyspace@0__:cart:*") or listener.get_message(timeout=5))
    kept.set("k", "1")
    until("it is read", lambda: kept.get("k") == b"1" and kept.get("k") == b"1")
    assert kept.get_cache().size > 0
    writer.set("k", "2")
    until("it is told", lambda: kept.get("k") == b"2")
    writer.hset("cart:7", "honey", "2")
    writer.hset("other", "honey", "2")
    writer.sadd("cart:8", "a")
    writer.delete("cart:0")
    if is_linear:
        writer.set("cart:9", "x", px=100)
    key = lambda n: b"__keyspace@0__:cart:%d" % n
    last = [(key(9), b"set"), (key(9), b"expired")] if is_linear else []
    heard(listener, [(key(7), b"hset"), (key(8), b"sadd"), (key(0), b"del"), *last])
    return writer, kept, listener


check(floor_reader, floor_writer, False)
writer, kept, listener = check(bank_reader, bank_writer, True)
assert kept.get("k") == b"2"
print("kill", flush=True)
sys.stdin.readline()
until("it is written", lambda: writer.set("k", "3"))
until("it is told though the leader died", lambda: kept.get("k") == b"3")
until("it is written", lambda: writer.set("cart:1", "3"))
heard(listener, [(b"__keyspace@0__:cart:1", b"set")])
print("as they should be")
