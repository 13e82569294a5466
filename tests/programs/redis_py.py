"""What a Python program does with sessions, by redis-py: python3 redis_py.py URL [URL ...], one of each node."""
import sys
import redis

urls = sys.argv[1:]
for protocol in (2, 3):
    at = [redis.from_url(url, protocol=protocol, decode_responses=True, socket_timeout=5) for url in urls]
    first = at[0]
    assert first.ping() is True
    key = f"py:{protocol}"
    assert first.set(key, "walnut", ex=100) is True
    for other in at:
        assert other.get(key) == "walnut", "what is acknowledged is read everywhere"
        assert 90 <= other.ttl(key) <= 100
    assert at[-1].set(key, "honey", nx=True) is None and first.set(key, "honey", xx=True, get=True) == "walnut"
    assert first.expire(key, 50) is True and first.exists(key, "py:none") == 1
    assert first.getdel(key) == "honey" and at[-1].get(key) is None
    pipe = first.pipeline(transaction=False)
    for i in range(100):
        pipe.set(f"{key}:{i}", "v" * i)
    assert pipe.execute() == [True] * 100
    assert sorted(at[-1].scan_iter(match=f"{key}:*", count=7)) == sorted(f"{key}:{i}" for i in range(100))
    assert at[-1].mget([f"{key}:3", f"{key}:nothing"]) == ["vvv", None]
    assert first.delete(*[f"{key}:{i}" for i in range(100)]) == 100
    # A pipeline is written whole before the first answer is read.
    patient, long = redis.from_url(urls[0], protocol=protocol, socket_timeout=120), f"{key}:".ljust(250, "k")
    assert patient.set(long, b"v" * 1000)
    pipe = patient.pipeline(transaction=False)
    for _ in range(20_000):
        pipe.get(long)
    assert pipe.execute() == [b"v" * 1000] * 20_000 and patient.delete(long) == 1
    # What is parsed by name, as of old: redis-py 4.6 and 5.3 want each of these.
    info, names = first.client_info(), "id age idle db sub psub multi qbuf qbuf-free obl argv-mem oll omem tot-mem".split()
    assert all(isinstance(info[name], int) for name in names) and info["user"] == "carts", info
    assert str(info["id"]) in [client["id"] for client in first.client_list()]
    assert first.set(key, "1") and first.info("keyspace")["db0"]["keys"] >= 1
    server = first.info()
    assert server["arch_bits"] == 64 and server["used_memory"] > 1 << 20 and server["redis_version"] == "7.4.0"
    try:
        first.lpush(key, "x")
        raise SystemExit("LPUSH should be refused")
    except redis.ResponseError as error:
        assert "session" in str(error), error
print("redis-py", redis.__version__, "is content")
