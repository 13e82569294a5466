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
    try:
        first.lpush(key, "x")
        raise SystemExit("LPUSH should be refused")
    except redis.ResponseError as error:
        assert "session" in str(error), error
print("redis-py", redis.__version__, "is content")
