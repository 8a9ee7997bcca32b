"""Transactions that enqueue, each in a process that may be killed: `python -m tests…committing ROUNDS SEED LONGEST`.

`LONGEST`: ms until a process is killed, at most; 0: it kills itself where DJANGO_JOBS_CRASH says, or ends.  Each
transaction also writes a Note (attempt 0) for each job, so that the database says what was committed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from uuid import uuid4


def main(rounds: int, seed: int, longest: float) -> None:
    import django

    django.setup()
    from django_jobs import Batch, chain  # noqa: F401  # before the processes, which would spend their time on it

    chance = random.Random(seed)
    for number in range(rounds):
        pause = chance.random() * longest / 1000
        if (pid := os.fork()) == 0:
            status = 1
            try:
                commit(number)
                status = 0
            finally:
                os._exit(status)
        if longest:
            time.sleep(pause)
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def commit(number: int) -> None:
    """One transaction; every fifth is rolled back."""
    from contextlib import suppress

    from django.db import transaction

    from django_jobs import Batch, chain
    from tests.integration.database_project.jobs import note

    with suppress(ZeroDivisionError), transaction.atomic():
        if number % 4 == 0:
            note.enqueue("default", written())
        elif number % 4 == 1:
            note.enqueue_many([("default", written()) for _ in range(3)])
        elif number % 4 == 2:
            chain(note.s("default", written()), note.s("default", written())).enqueue()
        else:
            with Batch("b", on_success=note.s("default", written())):
                note.enqueue("default", written())
                note.using(job_id=uuid4().hex).enqueue("default", written())
        if number % 5 == 4:
            raise ZeroDivisionError


def written() -> str:
    """Write a Note for one job.  Returns its text."""
    from tests.integration.database_project.models import Note

    text = uuid4().hex
    Note.objects.create(text=text, attempt=0)
    return text


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
