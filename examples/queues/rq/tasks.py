"""RQ, as it comes: a queue, and a worker that runs jobs in its own process."""

from counted import URL, did, main
from redis import Redis
from rq import Queue, Retry, SimpleWorker
from rq.job import Job
from rq.registry import FailedJobRegistry, StartedJobRegistry

connection = Redis.from_url(URL)
queue = Queue(connection=connection)


def job(number):
    did(number)


def work():
    SimpleWorker([queue], connection=connection).work(logging_level="WARNING")


def put(number):
    queue.enqueue("tasks.job", number, job_id=str(number), result_ttl=60, retry=Retry(max=3))


def left():
    begun = connection.lrange(queue.intermediate_queue_key, 0, -1)
    registries = [registry(queue=queue).get_job_ids(cleanup=False) for registry in (StartedJobRegistry, FailedJobRegistry)]
    ids = queue.job_ids + [id.decode() for id in begun] + sum(registries, [])
    return {"left": sorted({int(id.split(":")[0]) for id in ids}), "waiting": len(queue)}


if __name__ == "__main__":
    main(work, put, left)
