"""A process that uses an embedded store as a test tells it: `python -m tests.integration.embedded.user SETTING`.

Each line of the input is a word with arguments, each answer a line of JSON.  `add` and `has` take the name of a job.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from time import monotonic
from typing import Any

from django_jobs.core.values import Controls, Job, NewJob, Options
from django_jobs.exceptions import StoreError
from django_jobs.serialization.record import encode
from django_jobs.stores.embedded.store import MemoryStore, embedded_store
from django_jobs.stores.values.options import StoreOptions

QUEUE = "default"


def make(setting: str) -> Any:
    options = StoreOptions(namespace="embedded-tests")
    return MemoryStore(options) if setting == "memory" else embedded_store(setting, "/", options)


def add(store: Any, id: str, size: int = 2) -> None:
    job = Job(id, QUEUE, "tests.job", json.dumps([["x" * size], {}]).encode(), 1_800_000_000_000, Options(), Controls())
    store.enqueue(QUEUE, [NewJob(job.id, encode(job), job.controls)])


def answer(store: Any, word: str, *args: str) -> Any:
    match word:
        case "add":
            return add(store, *args)
        case "fill":  # jobs of 10 kB until one is refused; answers how many were accepted
            for n in range(int(args[0])):
                try:
                    add(store, f"fill-{n}", 10_000)
                except StoreError as error:
                    return [n, type(error).__name__, str(error)]
            return [int(args[0]), "", ""]
        case "has":
            return store.get(QUEUE, args[0]) is not None
        case "config":
            return store.transport.client.config_get(args[0])[args[0]]
        case "directory":
            return store.transport.client.config_get("dir")["dir"]
        case "threads":  # so many threads call at the same instant
            return in_threads(store, int(args[0]))
        case "become":  # another user, who may not be able to import
            add(make("memory"), "job")
            os.setgroups([])
            os.setgid(int(args[0]))
            os.setuid(int(args[0]))
        case "fork":  # the copy adds a job, and waits to be killed
            return fork(store, args[0])
        case "fork-while-starting":  # another thread makes the first call
            thread = threading.Thread(target=add, args=[store, "thread"])
            thread.start()
            pid = fork(store, args[0])
            thread.join()
            return pid
        case "close":  # while threads call; answers the errors
            return closing(store, int(args[0]))
    return None


def in_threads(store: Any, count: int) -> list[str]:
    barrier, errors = threading.Barrier(count), []

    def call(n: int) -> None:
        barrier.wait()
        try:
            add(store, f"thread-{n}")
        except StoreError as error:
            errors.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=call, args=[n]) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def closing(store: Any, times: int) -> list[str]:
    errors, over = set(), threading.Event()
    sys.setswitchinterval(0.000_01)  # so that the store is closed in the middle of most steps of a call

    def call(n: int) -> None:
        while not over.is_set():
            try:
                store.get(QUEUE, "job")
            except Exception as error:
                errors.add(type(error).__name__)

    threads = [threading.Thread(target=call, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(times):
        store.get(QUEUE, "job")
        store.close()
    over.set()
    for thread in threads:
        thread.join()
    return sorted(errors)


def fork(store: Any, id: str) -> int:
    read, write = os.pipe()
    if pid := os.fork():
        os.close(write)
        assert os.read(read, 1) == b"+"
        return pid
    add(store, id)
    os.write(write, b"+")
    threading.Event().wait(300)
    os._exit(0)


def serve(setting: str) -> None:
    store = make(setting)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        began = monotonic()
        try:
            found = {"value": answer(store, *line.split())}
        except Exception as error:
            found = {"error": type(error).__name__, "text": str(error)}
        print(json.dumps({**found, "seconds": monotonic() - began}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:  # begin together with others: when this file exists
        while not Path(sys.argv[2]).exists():
            threading.Event().wait(0.005)
    serve(sys.argv[1])
