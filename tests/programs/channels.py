"""Redis' Python client over three nodes: what is published at one comes to who listens at another."""

import sys
import time

import redis

urls = sys.argv[1:]
one, two, three = (redis.Redis.from_url(url) for url in urls)


def nodes():
    """All nodes have to know each other, and agree on a level, before the first subscription."""
    end = time.monotonic() + 20
    while True:
        try:
            return [r.publish("ready", "x") for r in (one, two, three)]
        except redis.ResponseError as error:
            assert "level" in str(error) and time.monotonic() < end, error
            time.sleep(0.1)


def heard(listener, count):
    """So many messages, without the answers to subscriptions."""
    got, end = [], time.monotonic() + 10
    while len(got) < count:
        assert time.monotonic() < end, got
        message = listener.get_message(timeout=1)
        if message and message["type"].endswith("message"):
            got.append((message["type"], message["channel"], message["data"]))
    return got


def confirmed(listener, count=1):
    while count:
        message = listener.get_message(timeout=5)
        assert message and message["type"].endswith("subscribe"), message
        count -= 1


nodes()
for protocol in (2, 3):
    listener = redis.Redis.from_url(urls[0], protocol=protocol).pubsub()
    by_pattern = redis.Redis.from_url(urls[2], protocol=protocol).pubsub()
    listener.subscribe("room")
    by_pattern.psubscribe("ro*")
    confirmed(listener)
    confirmed(by_pattern)
    # From the reply on nothing is missed, and all of one publisher comes in order.
    receivers = [two.publish("room", n) for n in range(200)]
    assert receivers == [2] * 200, receivers
    assert heard(listener, 200) == [("message", b"room", b"%d" % n) for n in range(200)]
    assert heard(by_pattern, 200) == [("pmessage", b"room", b"%d" % n) for n in range(200)]
    assert two.pubsub_numsub("room") == [(b"room", 1)] and two.pubsub_numpat() == 1
    assert two.pubsub_channels() == [b"room"]
    by_pattern.close()
    listener.unsubscribe("room")
    end = time.monotonic() + 10
    while two.pubsub_channels() or two.pubsub_numpat():
        assert time.monotonic() < end
        time.sleep(0.02)
    assert two.publish("room", "nobody") == 0
    listener.close()

# Node 3 is killed by who started this; the others go on.
listener = one.pubsub()
listener.subscribe("room")
confirmed(listener)
print("kill", flush=True)
sys.stdin.readline()
began = time.monotonic()
second = two.pubsub()
second.subscribe("other")
confirmed(second)
assert time.monotonic() - began < 5
assert two.publish("room", "on") == 1 and one.publish("other", "on") == 1
assert heard(listener, 1) == [("message", b"room", b"on")] and heard(second, 1) == [("message", b"other", b"on")]

# Who does not read is closed; who reads hears all.
slow = redis.Redis.from_url(urls[0]).pubsub()
slow.subscribe("room")
confirmed(slow)
large = b"x" * 500_000
for _ in range(80):
    one.publish("room", large)
    assert heard(listener, 1)[0][2] == large
end = time.monotonic() + 10
while one.pubsub_numsub("room") != [(b"room", 1)]:
    assert time.monotonic() < end, one.pubsub_numsub("room")
    time.sleep(0.05)
print("channels are as they should be")
