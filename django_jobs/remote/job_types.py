"""The remote job types of this process: read from the database now and then, so that no restart is needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, close_old_connections

from django_jobs import registry
from django_jobs.conf import get_settings
from django_jobs.definition import JobDefinition
from django_jobs.models import RemoteJobType
from django_jobs.outcome import SnoozeFor
from django_jobs.remote.push import push

logger = logging.getLogger("django_jobs.remote")

#: Seconds a reading is good for: a new type is known everywhere within this time and the length of a claim.
REFRESH = 3.0
#: Names of no type that are remembered, not to be looked up again at once.
MOST_MISSED = 1000
#: Milliseconds until a pull job that a Django worker met is offered again: its worker may be reading its queue by then.
LEAVE_FOR = 5_000

FIELDS = ("name", "queue", "delivery_strategy", "attempts", "concurrency", "timeout", "url", "credentials")


@dataclass(frozen=True, slots=True)
class RemoteType:
    """One row of RemoteJobType.  `timeout` is seconds; without a `url` its jobs are fetched."""

    name: str
    queue: str
    delivery_strategy: str
    attempts: int
    concurrency: int
    timeout: int
    url: str
    credentials: str


class Known:
    """What was read last, and the definitions made of it."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self.lock = Lock()
        self.read_at: float | None = None
        self.types: Mapping[str, RemoteType] = {}
        self.pull_queues: frozenset[str] = frozenset()
        self.definitions: dict[RemoteType, JobDefinition] = {}
        #: name → when it was found to be no type.
        self.missed: dict[str, float] = {}

    def refresh(self, oldest: float = REFRESH) -> Mapping[str, RemoteType]:
        """Return the types, read again if the last reading is `oldest` seconds old."""
        if get_settings().api is None:
            return {}
        if self.read_at is not None and self.clock() - self.read_at < oldest:
            return self.types
        with self.lock:
            if self.read_at is None or self.clock() - self.read_at >= oldest:
                self._read()
        return self.types

    def _read(self) -> None:
        try:
            types = {kind.name: kind for kind in _outside_event_loop(_rows)}
        except (DatabaseError, ImproperlyConfigured) as error:
            # Those known already go on; jobs of others are parked until the database answers.
            logger.warning("Remote job types could not be read: %s", error)
        else:
            self.types = types
            self.pull_queues = frozenset(_theirs_alone(types))
            self.definitions = {kind: made for kind, made in self.definitions.items() if kind in types.values()}
        self.read_at = self.clock()

    def definition_of(self, name: str) -> JobDefinition | None:
        """The definition of a remote type, the same object until its row changes; None if there is none."""
        kind = self.refresh().get(name) or self._look_again(name)
        if kind is None:
            return None
        definition = self.definitions.get(kind)
        if definition is None:
            definition = self.definitions.setdefault(kind, _definition(kind))
        return definition

    def _look_again(self, name: str) -> RemoteType | None:
        """A job may come sooner after its type than the next reading, and an unknown name parks it for a minute: read
        again, once in a while for each name."""
        now = self.clock()
        if now - self.missed.get(name, -REFRESH) < REFRESH:
            return None
        if len(self.missed) >= MOST_MISSED:
            self.missed.clear()
        self.missed[name] = now
        return self.refresh(0.0).get(name)

    def forget(self) -> None:
        """Read again at the next question: a type was just written, or the settings changed."""
        self.read_at = None


_known = Known()


def known() -> Mapping[str, RemoteType]:
    """The remote job types by name."""
    return _known.refresh()


def definition_of(name: str) -> JobDefinition | None:
    """How jobs of a remote type run and are enqueued; None if there is no such type.  For registry.add_resolver."""
    return _known.definition_of(name)


def is_pulled(name: str) -> bool:
    """Are jobs of that name fetched by workers over HTTP?"""
    kind = known().get(name)
    return kind is not None and not kind.url


def pull_queues() -> frozenset[str]:
    """The queues that belong to pull workers alone: `runworkers` leaves them to them."""
    return _known.pull_queues if known() else frozenset()


def forget() -> None:
    """Read the types again at the next question."""
    _known.forget()


def _theirs_alone(types: Mapping[str, RemoteType]) -> set[str]:
    """Queues of pull types in which nothing else can be expected.  In others each side passes the other's jobs on."""
    ours = {definition.queue for definition in registry.all_definitions()} | {"default"}
    pushed = {kind.queue for kind in types.values() if kind.url}
    return {kind.queue for kind in types.values() if not kind.url} - ours - pushed


def _definition(kind: RemoteType) -> JobDefinition:
    return JobDefinition(
        _pusher(kind) if kind.url else _leave,
        name=kind.name,
        queue=kind.queue,
        max_attempts=1 if kind.delivery_strategy == "at_most_once" else kind.attempts,
        delivery=kind.delivery_strategy,
        max_concurrency=kind.concurrency,
        api=True,
        # The time limit of a remote attempt is the lease of its claim, not the life of a process of ours.
        timeout=None,
    )


def _pusher(kind: RemoteType) -> Callable[[Any], Any]:
    def deliver(data: Any = None) -> Any:
        return push(kind.url, kind.credentials, kind.timeout, data)

    return deliver


def _leave(data: Any = None) -> SnoozeFor:
    """Only workers that fetch their jobs over HTTP run this one.  It has not started here, so one that is delivered at
    most once may wait for them, too: no `raise Snooze`, which would end it."""
    return SnoozeFor(LEAVE_FOR)


def _rows() -> list[RemoteType]:
    return [RemoteType(**row) for row in RemoteJobType.objects.values(*FIELDS)]


def _outside_event_loop(read: Callable[[], list[RemoteType]]) -> list[RemoteType]:
    """Call it here; or, where an event loop runs, on a thread, as Django wants its database used."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return read()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_read_and_close, read).result()


def _read_and_close(read: Callable[[], list[RemoteType]]) -> list[RemoteType]:
    try:
        return read()
    finally:
        close_old_connections()
