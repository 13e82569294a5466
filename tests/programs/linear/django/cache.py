"""Django's own Redis cache backend on a linear namespace: what Django's tests of a cache ask, python3 cache.py URL."""
import sys
import time
from django.conf import settings

settings.configure(CACHES={"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": sys.argv[1]}})
from django.core.cache import cache  # noqa: E402

cache.clear()
assert cache.get("none") is None and cache.get("none", "x") == "x"
cache.set("key", "value")
assert cache.get("key") == "value"
assert cache.add("addkey1", "value") and not cache.add("addkey1", "newvalue") and cache.get("addkey1") == "value"
assert cache.set_many({"a": 1, "b": [1, 2], "c": {"d": None}}) == [] and cache.get_many(["a", "b", "c", "x"]) == {"a": 1, "b": [1, 2], "c": {"d": None}}
assert cache.delete("a") and not cache.delete("a") and cache.has_key("b") and "a" not in cache
cache.delete_many(["b", "c"])
assert cache.get_many(["b", "c"]) == {}
cache.set("answer", 41)
assert cache.incr("answer") == 42 and cache.incr("answer", 10) == 52 and cache.decr("answer", 2) == 50
try:
    cache.incr("does_not_exist")
    raise SystemExit("incr of nothing must fail")
except ValueError:
    pass
cache.set("expire1", "very quickly", 1)
cache.set_many({"expire2": "x", "expire3": "y"}, 1)
cache.set("expire4", "kept", 1)
assert cache.touch("expire4", 100) and not cache.touch("nonexistent")
time.sleep(1.5)
assert cache.get("expire1") is None and cache.get_many(["expire2", "expire3"]) == {} and cache.get("expire4") == "kept"
cache.set("forever", "eternal", None)
cache.set("zero", "gone", 0)
assert cache.get("forever") == "eternal" and cache.get("zero") is None
assert cache.get_or_set("mykey", lambda: "default") == "default" and cache.get("mykey") == "default"
cache.set("v", 1, version=1)
cache.incr_version("v")
assert cache.get("v") is None and cache.get("v", version=2) == 1
cache.set("unicode ü", "ünïcødé") and None
assert cache.get("unicode ü") == "ünïcødé"
cache.set("binary", b"\x00\xff" * 1000)
assert cache.get("binary") == b"\x00\xff" * 1000
cache.clear()
assert cache.get("forever") is None
print("Django is content")
