"""django_jobs, default settings."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bench.django_settings")

from bench.subjects.base import QUEUES, Subject, serve


def _tasks() -> list:
    import django

    django.setup()
    from bench.jobs import noop

    return [noop.using(queue=queue) for queue in QUEUES]


def enqueue(n: int) -> None:
    tasks = _tasks()
    for i in range(n):
        tasks[i % 5].enqueue(i)


def bulk(n: int) -> None:
    for part, task in enumerate(_tasks()):
        task.enqueue_many((i,) for i in range(part, n, 5))


def workers(processes: int) -> list[list[str]]:
    command = [sys.executable, "-m", "django", "runworkers", "--processes", str(processes), "--verbosity", "0"]
    return [command]


SUBJECT = Subject("django_jobs", True, enqueue, workers, "defaults: leases, tokens, history, 8 threads", bulk)

if __name__ == "__main__":
    serve(SUBJECT)
