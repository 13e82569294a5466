"""Dramatiq, as it comes: its command starts the workers, and what a dead one had is put back by the others."""

import os
import sys

import dramatiq
from counted import URL, did, main
from dramatiq.brokers.redis import RedisBroker

# What a worker has that was silent for so long, milliseconds, is given to others; looked at in one of ten commands.
broker = RedisBroker(url=URL, heartbeat_timeout=3_000, maintenance_chance=100_000)
dramatiq.set_broker(broker)


@dramatiq.actor
def job(number):
    did(number)


def work():
    os.execv(sys.executable, [sys.executable, "-m", "dramatiq", "tasks", "--processes", "1", "--threads", "2"])


def left():
    kept = broker.client.hvals("dramatiq:default.msgs")
    numbers = sorted(dramatiq.Message.decode(one).args[0] for one in kept)
    return {"left": numbers, "waiting": broker.client.llen("dramatiq:default")}


if __name__ == "__main__":
    main(work, job.send, left)
