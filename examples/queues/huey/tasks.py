"""Huey, as it comes: its consumer with two threads. A task that was taken by a consumer that dies is gone: that is its promise."""

from counted import URL, did, main
from huey import RedisHuey

huey = RedisHuey("jobs", url=URL)


@huey.task(retries=3)
def job(number):
    did(number)


def work():
    huey.create_consumer(workers=2, worker_type="thread", periodic=False).run()


def left():
    pending = [task.args[0] for task in huey.pending()]
    return {"left": sorted(pending), "waiting": len(pending)}


if __name__ == "__main__":
    # Tasks are known by the name of their module, and that is not the one of the program which is run.
    import tasks

    main(tasks.work, tasks.job, tasks.left)
