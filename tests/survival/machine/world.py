"""The environment: a store on a server with a clock that can be set, a network, workers, and code that is deployed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from django.test import override_settings

from django_jobs import job
from django_jobs.core import registry
from django_jobs.core.values import Claim, Lane
from django_jobs.enqueueing import request, sending
from django_jobs.exceptions import Discard, Fail, Retry, Snooze, StoreUnavailable
from django_jobs.execution.executor import Executor
from django_jobs.schedules.scheduler import Periodic
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.errors import StoreLate
from django_jobs.stores.redis.connection.scripts import UNUSUAL
from django_jobs.stores.values.options import StoreOptions
from tests.survival.machine.model import Queue, Type

LEASE = 1_000
HOUR = 3_600_000
BEGIN = 1_800_000_000_000
QUEUES = {"a": Queue(), "b": Queue(max_length=4, max_concurrency=2)}
TYPES = [
    Type("m.plain", "a"),
    Type("m.limited", "a", limit=1),
    Type("m.keyed", "b", limit=1, per_value=True),
    Type("m.once", "b", once=True, max_attempts=1),
    Type("m.note", "a"),
]
#: Calls whose repetition may find less to do than the call did.
UPKEEP = {"promote", "prune", "repair", "workflows_due", "workflow_end"}
FAULTS = ("lost", "not answered", "doubled")

# -- the jobs ------------------------------------------------------------------------

#: How the next attempt ends; set before it runs.
outcome = "return"


def _act() -> str:
    match outcome:
        case "raise":
            raise ValueError("no")
        case "retry":
            raise Retry(in_=0.3)
        case "snooze":
            raise Snooze(in_=0.3)
        case "discard":
            raise Discard("enough")
        case "fail":
            raise Fail("never")
    return "done"


def plain(n: int = 1) -> str:
    return _act()


def limited(n: int = 1) -> str:
    return _act()


def keyed(n: int = 1) -> str:
    return _act()


def once(n: int = 1) -> str:
    return _act()


def note(n: int = 1) -> str:
    return _act()


FUNCTIONS = {"m.plain": plain, "m.limited": limited, "m.keyed": keyed, "m.once": once, "m.note": note}


def deploy(type: Type) -> Any:
    """Define the job as the newest code has it."""
    names = [type.name, *(f"{type.name}.{n}" for n in range(1, type.renamed + 1))]
    for name in names:
        registry.unregister(name)
    delivery = {"delivery": "at_most_once"} if type.once else {"max_attempts": type.max_attempts, "backoff": [0.4]}
    key = {"concurrency_key": "n"} if type.per_value else {}
    called = {"name": names[-1], "aliases": names[:-1]}  # the first alias is its identity
    return job(**called, queue=type.queue, max_concurrency=type.limit, **delivery, **key)(FUNCTIONS[type.name])


# -- the network -----------------------------------------------------------------------


class Network:
    """Wraps a transport: may lose the next request or its answer, and keeps copies that may arrive again."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.fault = ""
        self.copies: list[tuple[Any, Any, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def run(self, script: Any, keys: Any, args: Any) -> Any:
        if not script.numbered:
            return self.inner.run(script, keys, args)
        self.copies = [*self.copies[-30:], (script, keys, args)]
        fault, self.fault = self.fault, ""
        if fault == "lost":
            raise StoreUnavailable
        answer = self.inner.run(script, keys, args)
        if fault == "not answered":
            raise StoreUnavailable
        if script.name == "claim" and not fault and (len(answer) == 4 or not answer[5]):  # in short, or in full
            # It found no job and leaves no note.  Of a request that was answered there is no copy on a real network.
            self.copies.pop()
        if fault == "doubled":
            second = self.inner.run(script, keys, args)
            if second == UNUSUAL:  # a short form that was run before: the full one has the same number, and the answer
                return second
            assert script.name in UPKEEP or second == answer, f"{script.name} sent twice: {answer!r}, then {second!r}"
        return answer

    def run_together(self, calls: Sequence[Any]) -> list[Any]:
        if self.fault:
            return [self.run(*call) for call in calls]
        self.copies = [*self.copies[-30:], *(call for call in calls if call[0].numbered)]
        return self.inner.run_together(calls)

    def deliver(self, index: int) -> None:
        """A copy of an earlier request arrives now."""
        with suppress(StoreLate):
            self.inner.run(*self.copies[index % len(self.copies)])


# -- workers -----------------------------------------------------------------------------


@dataclass
class Attempt:
    """What a worker process does with one claim."""

    claim: Claim
    limit_key: str | None = None
    #: The process has ended the attempt, or has been killed.
    is_over: bool = False
    #: Its lease has ended: others may take the job, whatever the process does.
    is_lost: bool = False


class World:
    """Everything outside of the jobs."""

    def __init__(self, make: Callable[[StoreOptions], Store]) -> None:
        self.now = BEGIN
        self.make, self.namespace = make, f"m{uuid.uuid4().hex[:12]}"
        self.stack = ExitStack()
        queues = {
            name: {"MAX_LENGTH": queue.max_length, "MAX_CONCURRENCY": queue.max_concurrency, "ON_FULL": "block"}
            for name, queue in QUEUES.items()
        }
        hourly = {"job": "m.note", "cron": "0 * * * *", "missed": "all"}
        setting = {"STORE": "memory", "QUEUES": queues, "ON_COMMIT": False, "SCHEDULES": {"hourly": hourly}}
        self.stack.enter_context(override_settings(DJANGO_JOBS=setting))
        self.stack.enter_context(patch.object(request, "now_ms", lambda: self.now))
        #: seconds that a producer has waited for room, and what happens meanwhile.
        self.waited, self.meanwhile = 0.0, lambda: None
        self.stack.enter_context(patch.object(sending, "time", self))
        self.tasks = {type.name: deploy(type) for type in TYPES}
        self.store: Store = None  # type: ignore[assignment]
        self.restart()
        self.attempts: list[Attempt] = []
        self.executor = Executor(clock=lambda: self.now, close_connections=False)

    def restart(self) -> None:
        """The processes of the project are new ones: they know nothing of earlier calls."""
        if self.store is not None:
            self.store.close()
        self.store = self.make(StoreOptions(clock=lambda: self.now, namespace=self.namespace))
        self.network = Network(self.store.transport)
        self.store.transport = self.network  # type: ignore[assignment]
        use_store(self.store)
        self.parents = [Periodic(), Periodic()]

    def close(self) -> None:
        for task in self.tasks.values():
            registry.unregister(task.name)
        use_store(None)
        self.store.close()
        self.stack.close()

    def call(self, fault: str, act: Callable[[], Any]) -> Any:
        """Do this; if the store does not answer, do it again, as its caller would."""
        self.network.fault = fault
        try:
            return act()
        except StoreUnavailable:
            return act()
        finally:
            self.network.fault = ""

    def sleep(self, seconds: float) -> None:
        """A producer waits for room."""
        self.waited += 10
        self.meanwhile()

    def monotonic(self) -> float:
        return self.waited

    def claim(self, queue: str, worker: str, limit: int, lane: Lane, knows: str) -> Any:
        most = QUEUES[queue].max_concurrency
        of_types = {"knows": knows, "limits": registry.limits()}
        return self.store.claim(queue, worker, limit, lane=lane, lease=LEASE, max_running=most, **of_types)

    def living(self) -> Iterator[Attempt]:
        return (attempt for attempt in self.attempts if not attempt.is_over)
