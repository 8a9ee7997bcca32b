"""Stores full of what an operations console meets: a working shop, and everything hostile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from django_jobs.browse import search
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import Attempt, Claim, Completed, Controls, Job, NewJob, Options, State
from django_jobs.operations import searching
from django_jobs.samples.log import COARSE, FINE
from django_jobs.samples.worker import ENDS, WorkerSamples
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store

TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/jobs.py", line 41, in send_receipt
    smtp.send(order.receipt(), to=order.email)
  File "/usr/lib/python3.12/smtplib.py", line 755, in connect
    self.sock = self._get_socket(host, port, self.timeout)
TimeoutError: [Errno 110] Connection to mail.example.com timed out after 30 s
"""

#: What must never reach a page as markup.
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>"
RIGHT_TO_LEFT = "مرحبا بالعالم \u202egnp.exe\u202c שלום"


def send_receipt(order_id: int, email: str = "") -> None:
    """A job of the shop."""


def charge_card(order_id: int, card_number: str) -> None:
    """A job with a sensitive argument."""


def search_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a search of a few jobs go on in the background, as one of very many does."""
    monkeypatch.setattr(search, "FIRST_READ", 2)
    monkeypatch.setattr(search, "READ_MORE", 1)
    monkeypatch.setattr(searching, "FIRST_STRETCH", 0)


@contextmanager
def shop_jobs() -> Iterator[None]:
    """The shop's jobs, registered for as long as this lasts."""
    registry.register(JobDefinition(send_receipt, name="shop.send_receipt"))
    registry.register(JobDefinition(charge_card, name="shop.charge_card", sensitive=("card_number",)))
    yield
    for name in ("shop.send_receipt", "shop.charge_card"):
        registry.unregister(name)


class Filler:
    """Puts jobs into any state of a store, through the contract only."""

    def __init__(self, store: Store, prefix: str = "01J") -> None:
        self.store, self.number, self.prefix = store, 0, prefix

    def add(
        self,
        name: str = "shop.send_receipt",
        call: Any = None,
        *,
        queue: str = "default",
        id: str | None = None,
        run_in: int = 0,
        controls: Controls | None = None,
        record: bytes | None = None,
        tags: str = "",
    ) -> str:
        """Enqueue one; `call` is [[positional], {keyword}]."""
        self.number += 1
        id, now = id or f"{self.prefix}{self.number:09d}", self.store.now()
        controls = controls or Controls()
        data = json.dumps(call if call is not None else [[self.number], {}]).encode()
        record = record or encode(Job(id, queue, name, data, now, Options(max_attempts=10, tags=tags), controls))
        self.store.enqueue(queue, [NewJob(id, record, controls, now + run_in if run_in else 0)])
        return id

    def claim(self, queue: str = "default", limit: int = 1, worker: str = "web-1:4711/1") -> list[Claim]:
        """Take jobs as a worker does."""
        return self.store.claim(queue, worker, limit, lease=60_000).claims

    def run(self, id: str, *, queue: str = "default") -> Claim:
        """Take this job, which must be the next."""
        (claim,) = self.claim(queue)
        assert claim.id == id, (claim.id, id)
        return claim

    def attempt(self, claim: Claim, error_type: str, error: str, traceback: str = TRACEBACK) -> Attempt:
        """One attempt that failed."""
        return Attempt(claim.attempt, "failed", self.store.now(), 30_021, claim.worker, error_type, error, traceback)

    def make(
        self, state: State, error: str = "Connection timed out after 30 s", error_type: str = "TimeoutError", **job: Any
    ) -> str:
        """A job in `state`."""
        queue = job.get("queue", "default")
        if state is State.SCHEDULED:
            return self.add(**{"run_in": 3_600_000, **job})
        id = self.add(**job)
        if state is State.QUEUED:
            return id
        if state is State.CANCELLED:
            self.store.cancel(queue, [id])
            return id
        claim = self.run(id, queue=queue)
        if state is State.SUCCEEDED:
            self.store.complete(queue, [Completed(claim, b'{"sent": true}', 182, "shop.send_receipt")])
        elif state is State.RETRY:
            self.store.retry(claim, self.attempt(claim, error_type, error), 120_000)
        elif state is State.DEAD:
            self.store.bury(claim, self.attempt(claim, error_type, error))
        elif state is State.RUNNING:
            text = json.dumps({"message": "rows 4,200 of 10,000", "progress": 0.42, "at": self.store.now()})
            self.store.checkin(claim, text.encode())
        return id


def fill_typical(store: Store, number: int = 12) -> Filler:
    """A shop on an ordinary bad day."""
    filler = Filler(store)
    for i in range(number):
        filler.make(State.SUCCEEDED, call=[[i], {"email": "ada@example.com"}])
    for i in range(number // 2):
        tags = f"import:2026-11 customer:{42 + i % 2}"
        filler.make(State.DEAD, f"Connection to 10.0.0.{i} timed out after 30 s", call=[[7000 + i], {}], tags=tags)
    for i in range(number // 3):
        filler.make(
            State.DEAD, f"Card ending {1000 + i} was declined", "shop.errors.Declined", name="shop.charge_card",
            call=[[i], {"card_number": "4111111111111111"}],
        )  # fmt: skip
    for _ in range(number // 3):
        filler.make(State.RETRY, "500 Server Error for url: https://hooks.example.com/x", "requests.HTTPError")
    for _ in range(3):
        filler.make(State.RUNNING)
    filler.make(State.CANCELLED)
    for i in range(number // 3):
        filler.make(State.SCHEDULED, run_in=600_000 * (i + 1))
    for _ in range(number):
        filler.add()
    store.publish_worker("web-1:4711", worker_info(), 60_000)
    return filler


def fill_week(filler: Filler, clock: Any) -> None:
    """Three days of samples, with a night without a worker, by a clock that has a `shift` (ms)."""
    hour = 3_600_000
    to_the_hour = clock() % hour
    for ago in [*range(72, 40, -1), *range(28, 1, -1), *(n / 12 for n in range(12, 0, -1))]:
        clock.shift = -to_the_hour - int(ago * hour)
        filler.store.sample(["default"])
        for number in range(1 + int(ago * 7) % 5):
            filler.make(State.DEAD if number == 3 else State.SUCCEEDED)
    clock.shift = 0


def worker_info(**more: Any) -> dict[str, Any]:
    """What a worker says of itself."""
    job = {"id": "01J000000029", "name": "shop.send_receipt", "queue": "default", "since": 1_760_000_000_000}
    child = {"name": "web-1:4711/1", "pid": 4712, "lane": "shared", "memory": 48_000_000, "claimed": 3, "jobs": [job]}
    about = {"host": "web-1", "pid": 4711, "state": "running", "queues": ["default"], "processes": 2, "threads": 8}
    return {**about, "started_at": 0, "children": [child], **more}


def worker_numbers(now: int, hours: int) -> dict[str, Any]:
    """What a worker says it has done since it started so many hours ago, with a bad quarter of an hour."""
    start = now - hours * COARSE
    samples, done = WorkerSamples(start), [0, 0, 0]
    for at in range(start + FINE - start % FINE + 3000, now + 1, FINE):
        left = (now - at) // FINE
        done[0] += 40 + (at // FINE * 7919) % 23 + 30 * (left % 12 == 3)
        done[1] += 12 if left in (5, 6, 7) else (at // FINE) % 5 == 0
        done[2] += left == 6
        samples.take((done[0], done[1], done[2]), at)
    totals = dict.fromkeys(ENDS, 0) | {"succeeded": done[0], "failed": done[1], "dead": done[2]}
    totals |= {"retried": done[1] - done[2], "snoozed": 4, "cancelled": 2}
    return {"at": now, "started_at": start, "totals": totals, "samples": samples.as_json()}


def fill_hostile(store: Store) -> Filler:
    """Markup, right-to-left text, endless names and broken bytes in every place that data can reach."""
    filler = Filler(store)
    long = "n" * 10_000
    for state in (State.SUCCEEDED, State.DEAD, State.RETRY, State.RUNNING, State.CANCELLED, State.SCHEDULED):
        filler.make(state, MARKUP, MARKUP, name=MARKUP, call=[[MARKUP, RIGHT_TO_LEFT], {MARKUP: MARKUP}])
        filler.make(state, RIGHT_TO_LEFT * 50, long, name=long, call=[[long], {RIGHT_TO_LEFT: long}])
    for i, record in enumerate((b"\xff\xfe\x00<script>", b"+\nname only", b"-\nx\n\n\nnot a number\n\n[", b"\n" * 9)):
        filler.make(State.DEAD, record=record, id=f"broken-{i}")
    filler.make(State.DEAD, id=f'{MARKUP}/"?#% \u202e&')
    filler.make(State.DEAD, tags=" ".join(f"{n}{'w' * 63}" for n in range(8)))
    filler.make(State.DEAD, tags=MARKUP)
    filler.make(State.QUEUED, name=MARKUP, call="no call")
    filler.add(name=RIGHT_TO_LEFT, id="a/b c")
    (claim,) = filler.claim(worker=MARKUP)
    store.checkin(claim, json.dumps({"message": MARKUP, "progress": "NaN", "at": "x"}).encode())
    store.publish_worker(MARKUP, worker_info(host=MARKUP, queues=MARKUP, children=[MARKUP, {"jobs": [MARKUP]}]), 60_000)
    store.publish_worker(f"long-{long}", worker_info(host=long, pid=[], children=None), 60_000)
    store.pause("default", reason=MARKUP)
    store.pause("default", name="shop.send_receipt", reason=RIGHT_TO_LEFT)
    return filler
