"""Worker pools (`manage.py runworkers`) and producers of the survival project, as processes of their own."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from queue import Queue
from threading import Thread
from time import monotonic_ns
from typing import Any

from django_jobs.stores.redis import Store
from django_jobs.stores.values.options import StoreOptions
from tests.support.checker import Verdict, judge
from tests.support.fsck import fsck
from tests.support.ledger import Ledger
from tests.support.prepared import Process, start
from tests.support.processes import catches, children_of, is_alive, send_signal
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


class Pool:
    """One `runworkers` parent with its children."""

    def __init__(self, process: Process, log: Path) -> None:
        self.process, self.log = process, log
        #: every child it ever had that we saw.
        self.seen: set[int] = set()

    @property
    def pid(self) -> int:
        return self.process.pid

    def children(self) -> list[int]:
        """Living children."""
        found = [pid for pid in children_of(self.pid) if is_alive(pid)]
        self.seen |= set(found)
        return found

    def kill(self) -> None:
        """SIGKILL the parent; its children have to notice by themselves."""
        self.process.kill()
        self.process.wait(60)

    def kill_all(self) -> None:
        """SIGKILL parent and children at once, as when a machine dies."""
        children = self.children()
        self.process.kill()
        for pid in children:
            send_signal(pid, signal.SIGKILL)
        self.process.wait(60)

    def stop(self, seconds: float = 60) -> int:
        """SIGTERM, once it listens to signals; the exit status."""
        wait_until(lambda: self.process.poll() is not None or catches(self.pid, signal.SIGTERM), "it listens")
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def text(self) -> str:
        """What it logged."""
        return self.log.read_text(errors="replace")


class Site:
    """Everything of one test: a store, a ledger, pools and producers with the same settings."""

    def __init__(self, folder: Path, store: str, **jobs_settings: Any) -> None:
        self.folder = folder
        self.ledger = Ledger(folder / "ledger")
        self.store_setting = store
        self.jobs_settings = {"STORE": store, **jobs_settings}
        self.pools: list[Pool] = []
        self.producers: list[Producer] = []
        #: pid → when it was killed (monotonic ns).
        self.deaths: dict[int, int] = {}
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        """The same store, seen from the test: use `direct` where the setting leads through a proxy."""
        if self._store is None:
            self._store = Store.from_setting(self.store_setting, options=StoreOptions(history=200_000))
        return self._store

    def direct(self, url: str) -> None:
        """Let the test itself look past the proxy."""
        self._store = Store.from_setting(url, options=StoreOptions(history=200_000))

    def environment(self, **extra: str) -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.survival.project.settings",
            "PYTHONPATH": str(ROOT),
            "SURVIVAL_LEDGER": str(self.ledger.path),
            "SURVIVAL_JOBS": json.dumps(self.jobs_settings),
            **extra,
        }

    def pool(
        self,
        *options: str,
        processes: int = 1,
        threads: int = 4,
        crash: str = "",
        extra: dict[str, str] | None = None,
        periodic: bool = False,
    ) -> Pool:
        """Start workers; `crash` as in worker/crashpoints.py, `extra` environment."""
        path = self.folder / f"pool-{len(self.pools)}.log"
        size = ["--processes", str(processes), "--threads", str(threads)]
        arguments = ["runworkers", *size, *([] if periodic else ["--no-periodic"]), "--verbosity", "0", *options]
        with path.open("wb") as file:
            environment = self.environment(DJANGO_JOBS_CRASH=crash, **(extra or {}))
            new = "SURVIVAL_CLOCK" in environment
            process = start(arguments, environment, file.fileno(), new=new)
        self.pools.append(Pool(process, path))
        return self.pools[-1]

    def producer(self, **extra: str) -> Producer:
        """Start a producer, with more in its environment."""
        self.producers.append(Producer(self, extra))
        return self.producers[-1]

    def note_deaths(self, *pids: int) -> None:
        """These die now: runs they leave unfinished end here."""
        self.deaths.update(dict.fromkeys(pids, monotonic_ns()))

    def state_of(self, id: str, queue: str = "default") -> str | None:
        """Where the store has the job."""
        info = self.store.get(queue, id)
        return info.state.value if info else None

    def counts(self, queue: str = "default") -> dict[str, int]:
        """state → jobs."""
        return self.store.stats([queue])[0].counts

    def repeats(self) -> str:
        """Each event of the jobs that started more than once, and what the pools logged: for the message of a test."""
        events = self.ledger.read()
        starts = Counter(event.id for event in events if event.kind == "start")
        lines = [str(event) for event in events if starts[event.id] > 1]
        return "\n".join([*lines, *(pool.text() for pool in self.pools)])

    def drained(self, queue: str = "default") -> bool:
        """Is nothing left that will run?"""
        counts = self.counts(queue)
        return not any(counts[state] for state in ("queued", "running", "retry", "scheduled", "blocked"))

    def wait_drained(self, *, seconds: float = 60, queue: str = "default") -> None:
        """Until nothing is left that will run."""
        wait_until(lambda: self.drained(queue), "the queue is drained", seconds=seconds, every=0.1)

    def verdict(self, queue: str = "default") -> Verdict:
        """After a drain: the checker's judgement, with fsck clean."""
        assert fsck(self.store, queue) == []
        verdict = judge(self.ledger.read(), lambda id: self.state_of(id, queue))
        assert verdict.is_sound, verdict
        return verdict

    def unexplained(self, queue: str = "default") -> dict[str, str]:
        """Jobs that started more often than their record says: once, and once more for each failure and each worker
        that was lost.  Where nobody was told to stop there are no other reasons."""
        starts = Counter(event.id for event in self.ledger.read() if event.kind == "start")
        found = {}
        for id in (id for id, count in starts.items() if count > 1):
            info = self.store.get(queue, id)
            reasons = info.failures + info.crashes if info else 0
            if starts[id] > 1 + reasons:
                found[id] = f"{starts[id]} starts, {reasons} reasons"
        return found

    def close(self) -> None:
        """End every process."""
        for producer in self.producers:
            producer.close()
        for pool in self.pools:
            if pool.process.poll() is None:
                pool.kill_all()
        if self._store is not None:
            self._store.close()


class Producer:
    """A process that enqueues."""

    def __init__(self, site: Site, extra: dict[str, str]) -> None:
        theirs, ours = os.pipe()
        answers, output = os.pipe()
        environment = {**site.environment(), **extra}
        new = "SURVIVAL_CLOCK" in environment
        self.process = start([], environment, output, input=theirs, module="tests.survival.project.produce", new=new)
        for fd in (theirs, output):
            os.close(fd)
        self._stdin, self._stdout = os.fdopen(ours, "w"), os.fdopen(answers)
        self._asked = 0
        self._requests: Queue[str] = Queue()
        self._answers: Queue[str] = Queue()
        Thread(target=self._talk, daemon=True).start()

    def _talk(self) -> None:
        with suppress(OSError, ValueError):
            while True:
                print(self._requests.get(), file=self._stdin, flush=True)
                self._answers.put(self._stdout.readline())

    def ask(self, job: str, ids: list[str], *args: Any, queue: str | None = None) -> None:
        """Begin to enqueue; `answer` waits for the end."""
        self._asked += 1
        self._requests.put(json.dumps({"job": job, "args": args, "ids": ids, "queue": queue}))

    @property
    def is_busy(self) -> bool:
        """Is there a request that it has not answered?"""
        return self._asked > self._answers.qsize()

    def answer(self, *, seconds: float = 120) -> dict[str, Any]:
        """What became of the oldest request."""
        line = self._answers.get(timeout=seconds)
        assert line, "the producer has died"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def send(self, job: str, count: int, *args: Any, prefix: str = "j") -> list[str]:
        """Enqueue `count` jobs, ids PREFIX-0 …, and expect every one to be accepted."""
        ids = [f"{prefix}-{n}" for n in range(count)]
        self.ask(job, ids, *args)
        answer = self.answer()
        assert not answer["errors"], answer["errors"]
        return ids

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait(60)
        for pipe in (self._stdin, self._stdout):
            with suppress(OSError):  # what was not written any more
                pipe.close()
