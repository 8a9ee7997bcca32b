"""A web process that starts others after it has used the store, as servers with preloaded code do: run by a test.

    python -m tests.integration.forking fork|spawn

Prints, as JSON, the ids that each process enqueued.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from multiprocessing.connection import Connection

JOBS = 200


def enqueue() -> list[str]:
    """Enqueue, and look each job up: an answer that was meant for another process would not fit."""
    from tests.integration.worker_project.jobs import add

    ids = []
    for n in range(JOBS):
        handle = add.enqueue(n, n)
        assert handle.refresh().id == handle.id
        ids.append(handle.id)
    return ids


def serve(answer: Connection) -> None:
    import django

    django.setup()
    answer.send(enqueue())


def main(method: str) -> None:
    import django

    django.setup()
    answers = [enqueue()]
    context = multiprocessing.get_context(method)
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    processes = [context.Process(target=serve, args=(writer,)) for _, writer in pipes]
    for process in processes:
        process.start()
    answers.append(enqueue())
    for process, (reader, writer) in zip(processes, pipes, strict=True):
        writer.close()
        answers.append(reader.recv())
        process.join()
        assert process.exitcode == 0
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1])
