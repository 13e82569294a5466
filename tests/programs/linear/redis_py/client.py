"""What Python programs do with a linear namespace, by redis-py: python3 client.py URL [URL ...], one of each node."""
import sys
import threading
import time
import redis

urls = sys.argv[1:]
for protocol in (2, 3):
    at = [redis.from_url(url, protocol=protocol, decode_responses=True, socket_timeout=10) for url in urls]
    a, b, c = at[0], at[1 % len(at)], at[-1]
    assert a.flushdb() is True and b.dbsize() == 0
    # Texts and numbers.
    assert a.set("t", "hello") and b.setrange("t", 5, "!") == 6 and c.getrange("t", 0, -1) == "hello!"
    assert a.setbit("bits", 7, 1) == 0 and b.getbit("bits", 7) == 1 and c.bitcount("bits") == 1
    assert a.msetnx({"m1": "1", "m2": "2"}) and not b.msetnx({"m2": "x", "m3": "y"}) and c.exists("m3") == 0
    assert a.incrbyfloat("f", 1.5) == 1.5 and a.incr("n", 5) == 5 and b.decr("n") == 4
    assert a.copy("t", "t2") and b.get("t2") == "hello!" and not a.copy("t", "m1")
    assert a.expire("t2", 100) and 0 < c.expiretime("t2") and a.persist("t2")
    # Hashes.
    assert a.hset("h", mapping={f"f{i:02}": str(i) for i in range(30)}) == 30
    assert dict(b.hscan_iter("h", count=7)) == {f"f{i:02}": str(i) for i in range(30)}
    assert dict(b.hscan_iter("h", match="f1*")) == {f"f{i}": str(i) for i in range(10, 20)}
    assert c.hstrlen("h", "f11") == 2 and a.hincrby("h", "f00", 5) == 5
    # Lists.
    assert a.rpush("l", "a", "b", "c") == 3 and b.lset("l", 1, "B") and c.linsert("l", "after", "B", "x") == 4
    assert a.lpos("l", "x") == 2 and b.lmove("l", "l2", "LEFT", "RIGHT") == "a" and c.rpoplpush("l", "l2") == "c"
    assert a.lrange("l2", 0, -1) == ["c", "a"] and a.lpushx("nolist", "x") == 0 and a.rpushx("l", "y") == 3
    # Sets.
    assert a.sadd("s", *"abcdef") == 6 and a.sadd("r", *"defgh") == 5
    assert b.sinter("s", "r") == set("def") and c.sunion("s", "r") == set("abcdefgh") and a.sdiff("s", "r") == set("abc")
    assert sorted(b.sscan_iter("s", count=2)) == list("abcdef") and a.smove("s", "r", "a") and c.sismember("r", "a")
    assert a.srandmember("s") in set("bcdef") and len(a.srandmember("s", 3)) == 3
    popped = {b.spop("s") for _ in range(5)}
    assert popped == set("bcdef") and a.spop("s") is None
    # Sorted sets.
    assert a.zadd("z", {"a": 1, "b": 2.5, "c": float("inf")}) == 3 and b.zadd("z", {"a": 9, "d": 0}, nx=True) == 1
    assert c.zscore("z", "b") == 2.5 and a.zmscore("z", ["c", "x"]) == [float("inf"), None] and b.zincrby("z", 0.5, "b") == 3
    assert a.zrange("z", 0, -1) == ["d", "a", "b", "c"] and b.zrange("z", 0, 1, desc=True) == ["c", "b"]
    scored = c.zrange("z", "(0", 3, byscore=True, withscores=True)
    assert [tuple(item) for item in scored] == [("a", 1.0), ("b", 3.0)], scored
    assert a.zrank("z", "b") == 2 and b.zrevrank("z", "b") == 1 and c.zcount("z", 1, "+inf") == 3
    assert a.zunionstore("z2", {"z": 2, "s2": 1}) == 4 and b.zscore("z2", "b") == 6 and c.zinter(["z", "z2"]) == ["d", "a", "b", "c"]
    assert dict(a.zscan_iter("z", count=2)) == {"a": 1.0, "b": 3.0, "c": float("inf"), "d": 0.0} and b.type("z") == "zset"
    assert a.zremrangebyscore("z", 0, 1) == 2 and b.zpopmax("z")[0] in (["c", float("inf")], ("c", float("inf")), "c")
    assert tuple(c.bzpopmin("z", 1)) == ("z", "b", 3.0) and a.exists("z") == 0 and a.delete("z2") == 1
    # Streams, and groups of consumers.
    first = a.xadd("x", {"f": "1"})
    assert b.xadd("x", {"f": "2"}, id="*", maxlen=1000) > first and c.xlen("x") == 2 and a.type("x") == "stream"
    assert [fields for _, fields in b.xrange("x")] == [{"f": "1"}, {"f": "2"}] and c.xrevrange("x", count=1)[0][1] == {"f": "2"}
    assert a.xgroup_create("x", "g", id="0") and b.xreadgroup("g", "one", {"x": ">"}, count=1, block=1000)
    assert len(c.xreadgroup("g", "two", {"x": ">"})) == 1 and not a.xreadgroup("g", "two", {"x": ">"}, block=10)
    pending = b.xpending("x", "g")
    assert pending["pending"] == 2 and {one["name"] for one in pending["consumers"]} == {"one", "two"}, pending
    assert a.xack("x", "g", first) == 1 and len(b.xautoclaim("x", "g", "one", 0)[1]) == 1
    assert [one["consumer"] for one in c.xpending_range("x", "g", "-", "+", 10)] == ["one"]
    assert a.xinfo_groups("x")[0]["lag"] == 0 and b.xinfo_stream("x")["length"] == 2 and len(c.xinfo_consumers("x", "g")) == 2
    assert a.xtrim("x", maxlen=0, approximate=False) == 2 and not b.xread({"x": "$"}, block=10) and a.delete("x") == 1
    # All keys.
    assert a.randomkey() is not None and set(b.scan_iter(_type="hash")) == {"h"}
    assert sorted(c.scan_iter(match="m*", count=1)) == ["m1", "m2"]
    assert a.type("l") == "list" and a.object("ENCODING", "h") == "hashtable" and a.object("REFCOUNT", "none") is None
    # Only while it is what somebody believes it to be.
    assert a.set("lock", "mine") and b.execute_command("SET", "lock", "stolen", "IFEQ", "yours") is None
    assert c.get("lock") == "mine" and b.execute_command("SET", "lock", "next", "IFEQ", "mine") in (True, "OK", b"OK")
    digest = a.execute_command("DIGEST", "lock")
    assert b.execute_command("DELEX", "lock", "IFDNE", digest) == 0 and c.execute_command("DELEX", "lock", "IFDEQ", digest) == 1
    # What is asked beside values.
    info = a.client_info()
    assert info["multi"] == -1 and info["idle"] == info["qbuf"] == 0 and info["user"], info
    # Nodes tell each other once a second how much there is.
    until = time.monotonic() + 30
    while "db0" not in a.info("keyspace") and time.monotonic() < until:
        time.sleep(0.1)
    keys = a.info("keyspace")["db0"]
    assert keys["keys"] > 0 and keys["keys"] >= keys["expires"] >= 0 and keys["avg_ttl"] == 0, keys
    assert a.config_get("maxmemory*")["maxmemory-policy"] == "noeviction" and a.time()[0] > 1_600_000_000
    assert a.info("cluster")["cluster_enabled"] in (0, "0") and "hset" in a.command() and a.command_count() > 100
    assert a.client_id() > 0 and a.client_setname("py") and a.client_getname() == "py" and a.client_info()["user"] == "bank"
    # Connections of the namespace at all nodes, and one of them that is killed from another node: redis-py comes again.
    for one, name in ((a, "at-a"), (b, "at-b"), (c, "at-c")):
        one.client_setname(name)
    there = {line["name"]: line for line in b.client_list()}
    assert {"at-a", "at-b", "at-c"} <= set(there), there
    assert a.client_kill_filter(_id=there["at-c"]["id"]) == 1 and c.ping()
    assert "at-c" not in {line["name"] for line in b.client_list()}
    # Places, estimates, numbers of bits, and a list in another order.
    assert a.geoadd("places", (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania")) == 2
    assert b.geodist("places", "Palermo", "Catania", "km") == 166.2742
    assert c.geosearch("places", longitude=15, latitude=37, radius=200, unit="km", sort="ASC") == ["Catania", "Palermo"]
    assert b.pfadd("{pf}seen", *range(1000)) == 1 and 970 < c.pfcount("{pf}seen") < 1030
    assert a.pfmerge("{pf}all", "{pf}seen") and b.pfcount("{pf}all") == c.pfcount("{pf}seen")
    assert a.bitfield("fields").incrby("u8", 0, 255).overflow("SAT").incrby("u8", 0, 9).get("u4", "#1").execute() == [255, 255, 15]
    assert a.rpush("unsorted", 3, 1, 20) == 3 and c.sort("unsorted", desc=True) == ["20", "3", "1"]
    assert b.eval("return redis.call('GEOSEARCH', KEYS[1], 'FROMMEMBER', 'Palermo', 'BYRADIUS', 1, 'm')", 1, "places") == ["Palermo"]
    for not_offered in (["JSON.GET", "x"], ["FT.SEARCH", "x", "y"]):
        try:
            a.execute_command(*not_offered)
            raise SystemExit(f"{not_offered} should be refused")
        except redis.ResponseError as error:
            assert "linear" in str(error), error
    # Scripts, also those that redis-py has of its own.
    add_below = a.register_script("""
      local n = tonumber(redis.call('GET', KEYS[1]) or '0')
      if n + ARGV[1] > tonumber(ARGV[2]) then return {err = 'OVER the limit'} end
      return redis.call('INCRBY', KEYS[1], ARGV[1])""")
    assert add_below(keys=["scripted"], args=[5, 8]) == 5 and add_below(keys=["scripted"], args=[3, 8], client=b) == 8
    try:
        add_below(keys=["scripted"], args=[1, 8], client=c)
        raise SystemExit("a script's error is an error")
    except redis.ResponseError as error:
        assert "OVER the limit" in str(error) or str(error) == "the limit", error
    assert c.script_exists(add_below.sha, "0" * 40)[1] in (False, 0) and len(c.script_load("return 1")) == 40
    lock = redis.lock.Lock(a, "locked", timeout=30)
    other = redis.lock.Lock(b, "locked", timeout=30, blocking=False)
    assert lock.acquire() and not other.acquire() and lock.extend(30) and lock.reacquire() and lock.owned()
    lock.release()
    assert other.acquire() and a.exists("locked") == 1
    try:
        lock.local.token = b"stolen"
        lock.release()
        raise SystemExit("a lock of others was released")
    except redis.exceptions.LockNotOwnedError:
        pass
    other.release()
    limiter = """
      local now = redis.call('TIME') now = now[1] * 1000 + math.floor(now[2] / 1000)
      redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[1])
      if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
      redis.call('ZADD', KEYS[1], now, ARGV[3]) redis.call('PEXPIRE', KEYS[1], ARGV[1])
      return 1"""
    assert [at[n % len(at)].eval(limiter, 1, "limited", 60000, 3, n) for n in range(5)] == [1, 1, 1, 0, 0]
    # A job as BullMQ adds it: its options packed, keys that are not declared.
    job = """
      local opts = cmsgpack.unpack(ARGV[2])
      local id = redis.call('INCR', KEYS[1] .. ':id')
      local key = KEYS[1] .. ':' .. id
      redis.call('HMSET', key, 'name', ARGV[1], 'data', cjson.encode({id = id, list = {1, 2}}), 'delay', opts.delay)
      redis.call(opts.lifo and 'RPUSH' or 'LPUSH', KEYS[1] .. ':wait', id)
      return {tostring(id), redis.call('LLEN', KEYS[1] .. ':wait'), cjson.decode(redis.call('HGET', key, 'data')).list[2]}"""
    packed = b"\x82\xa5delay\x05\xa4lifo\xc3"
    assert a.eval(job, 1, "bull", "mail", packed) == ["1", 1, 2] and b.eval(job, 1, "bull", "mail", packed) == ["2", 2, 2]
    assert c.hget("bull:2", "delay") == "5" and c.lrange("bull:wait", 0, -1) == ["1", "2"]
    with a.pipeline() as pipe:
        pipe.set("in", 1)
        pipe.eval("return redis.call('INCR', 'in')", 0)
        pipe.get("in")
        assert pipe.execute() in ([True, 2, "2"], ["OK", 2, "2"])
    for key in ["scripted", "limited", "bull:1", "bull:2", "bull:id", "bull:wait", "in"]:
        a.delete(key)
    # Functions by name.
    assert a.fcall("number.add", 1, "n", 6) == 10 and b.fcall_ro("get", 1, "n") == "10"
    token = a.fcall("lease.claim", 1, "lock", "me", 60000)
    assert token > 0 and b.fcall("lease.claim", 1, "lock", "you", 60000) is None
    assert b.fcall("lease.renew", 1, "lock", token, 60000) == 1 and c.fcall("lease.release", 1, "lock", token) == 1
    # What may be stale is what it was, a moment later.
    d = redis.from_url(urls[-1], protocol=protocol, decode_responses=True, single_connection_client=True)
    assert d.execute_command("READONLY", 5000) in (True, "OK") and d.get("n") == "10" and d.get("n") == "10"
    assert d.execute_command("READWRITE") in (True, "OK")
    # A counter by transactions, from all sides: optimistic locking as redis-py has it.
    a.set("count", 0)

    def add(client):
        for _ in range(25):
            client.transaction(lambda pipe: (lambda now: (pipe.multi(), pipe.set("count", now + 1)))(int(pipe.get("count"))), "count")

    threads = [threading.Thread(target=add, args=(client,)) for client in at]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert int(a.get("count")) == 25 * len(at), a.get("count")
print("redis-py", redis.__version__, "is content")
