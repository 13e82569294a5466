"""arq, as it comes: each job runs at least once, under an id of its own."""

import asyncio

from arq import create_pool, run_worker
from arq.connections import RedisSettings
from counted import URL, did, main

SETTINGS = RedisSettings.from_dsn(URL)


async def job(_, number):
    did(number)


class WorkerSettings:
    functions = [job]
    redis_settings = SETTINGS
    # A job whose worker died begins again so many seconds later, and ten.
    job_timeout = 5
    poll_delay = 0.1
    max_jobs = 2
    keep_result = 60


loop = asyncio.new_event_loop()
pool = None


def once(ask):
    global pool
    asyncio.set_event_loop(loop)
    if pool is None:
        pool = loop.run_until_complete(create_pool(SETTINGS))
    return loop.run_until_complete(ask(pool))


def work():
    asyncio.set_event_loop(loop)
    run_worker(WorkerSettings)


def put(number):
    once(lambda pool: pool.enqueue_job("job", number, _job_id=str(number)))


def left():
    ids = once(lambda pool: pool.zrange("arq:queue", 0, -1))
    return {"left": sorted(int(id) for id in ids), "waiting": len(ids)}


if __name__ == "__main__":
    main(work, put, left)
