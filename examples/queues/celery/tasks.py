"""Celery, as it comes: messages that are acknowledged when their task is done, and results in database 1."""

import json

from celery import Celery
from counted import URL, did, main

app = Celery("tasks", broker=URL + "/0", backend=URL + "/1")
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    # What a dead worker had is given to another one after so many seconds.
    broker_transport_options={"visibility_timeout": 5},
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    result_expires=600,
)


@app.task(name="job")
def job(number):
    did(number)
    return number


def work():
    app.worker_main(["worker", "--pool", "solo", "-l", "warning", "--without-gossip", "--without-mingle"])


def put(number):
    job.apply_async((number,), task_id=str(number))


def left():
    broker, results = app.connection_for_read().default_channel.client, app.backend.client
    waiting = broker.lrange("celery", 0, -1)
    begun = [json.loads(one)[0] for one in broker.hvals("unacked")]
    ids = [int(one["headers"]["id"]) for one in [json.loads(one) for one in waiting] + begun]
    return {"left": sorted(ids), "waiting": len(waiting), "results": results.dbsize()}


if __name__ == "__main__":
    main(work, put, left)
