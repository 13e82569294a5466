"""What the examples have in common: a job leaves its number in a file, and what was put is asked for until it is taken."""

import json
import os
import sys
import time

URL = os.environ.get("QUEUE_URL", "redis://127.0.0.1:6379")


def did(number):
    """A line for each time that a job ran; one write, so that lines of several workers do not mix."""
    path = os.environ.get("DONE")
    if path is None:
        print("job", number, flush=True)
        return
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, b"%d\n" % number)
    os.close(file)


def put_all(count, put):
    """Puts jobs 1 to `count`. One of which nobody knows whether it was taken is put again, and told."""
    again = []
    for number in range(1, count + 1):
        while True:
            try:
                put(number)
                break
            except Exception as error:  # each library has its own
                print(f"{number}: {error!r}", file=sys.stderr)
                again.append(number)
                time.sleep(0.1)
    print(json.dumps({"again": again}))


def main(work, put, left):
    """`work`; `put COUNT`; or `left`: numbers of jobs that the library still has, waiting, begun or failed."""
    match sys.argv[1:]:
        case ["work"]:
            work()
        case ["put", count]:
            put_all(int(count), put)
        case ["left"]:
            print(json.dumps(left()))
        case _:
            sys.exit("usage: tasks.py work | put COUNT | left")
