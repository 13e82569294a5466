"""Runs Redis's own test suite against a namespace of class `linear` (docs/redis-suite.md).

    python3 run.py REDIS_SOURCE HOST:PORT NAMESPACE TOKEN [FILE ...]

REDIS_SOURCE is a checkout of https://github.com/redis/redis; it needs nothing built, but tclsh. A FILE is like
unit/type/string. Prints a row for each file, and each test that failed with the first line of why. The namespace is emptied.
"""

import pathlib
import re
import subprocess
import sys

FILES = """unit/type/string unit/type/incr unit/type/list unit/type/list-3 unit/type/hash unit/type/set unit/type/zset
unit/type/stream unit/type/stream-cgroups unit/keyspace unit/expire unit/scan unit/multi unit/bitops unit/sort""".split()
# What is about one process of Redis and its inside.
WITHOUT = "-needs:debug -needs:repl -needs:config-maxmemory -needs:save -large-memory -slow -cluster:skip -cluster"
# Files whose tests all have the tag `scripting`. In others it marks those that make their keys by scripts.
OF_SCRIPTS = ("unit/scripting", "unit/functions")
WITHIN = 400


def run(source, port, file):
    without = WITHOUT if file in OF_SCRIPTS else WITHOUT + " -scripting"
    suite = ["tclsh", "tests/test_helper.tcl", "--host", "127.0.0.1", "--port", port, "--singledb", "--single", file,
             "--ignore-encoding", "--ignore-digest", "--durable", "--timeout", str(WITHIN), "--tags", without]
    try:
        said = subprocess.run(suite, cwd=source, capture_output=True, timeout=WITHIN + 20).stdout
    except subprocess.TimeoutExpired as late:
        said = late.stdout or b""
    said = re.sub(r"\x1b\[[0-9;]*m", "", said.decode("utf-8", "replace"))
    passed = re.findall(r"^\[ok\]: (.*?)(?: \(\d+ ms\))?$", said, re.M)
    skipped = re.findall(r"^\[(?:skip|ignore)\]: (.*)$", said, re.M)
    failed = re.findall(r"^\[(?:err|exception)\]:? (.*)\n?(.*)$", said, re.M)
    return passed, failed, skipped, said


def main():
    source, address, namespace, token, *files = sys.argv[1:]
    door = pathlib.Path(__file__).with_name("door.py")
    with subprocess.Popen([sys.executable, door, address, namespace, token], stdout=subprocess.PIPE, text=True) as door:
        try:
            port = door.stdout.readline().strip()
            for file in files or FILES:
                passed, failed, skipped, said = run(source, port, file)
                print(f"| `{file}` | {len(passed)} | {len(failed)} | {len(skipped)} |", flush=True)
                for name, why in failed:
                    print(f"    {name}: {why}"[:300], flush=True)
                if "[1/1 done]" not in said:
                    print(f"    the file did not come to its end: {said[-1000:]}", flush=True)
        finally:
            door.terminate()


main()
