"""Waiting for the end of a workflow or batch: few of its fields are read, and one job is waited for at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from django_jobs import outbox
from django_jobs.exceptions import WorkflowNotFound
from django_jobs.stores.values.answers import End
from django_jobs.stores.values.workflows import LIVE
from django_jobs.workflows import reading
from django_jobs.workflows.packing import CHUNK

if TYPE_CHECKING:
    from django_jobs.stores.redis import Store

#: Seconds between two looks: at least; at most after a job has ended, and while no job is known to wait for; at most
#: while a job runs.  While nothing changes, each pause is twice the one before.
_SOONEST, _SOON, _LATEST = 0.02, 1.0, 10.0
#: A pause is at least so many times the seconds that the look before it took.
_IDLE = 5


class Wait(NamedTuple):
    """What to wait for until the next look."""

    #: the end of one of its jobs, from which something may follow.  None: no job is known.
    end: End | None
    #: seconds to wait for `end`, at most.
    patience: float
    #: seconds to pause after that: what follows from an end takes a moment.
    pause: float


class Watch:
    """Looks at one workflow or batch until it has ended.  Each look costs a few reads, whatever the number of steps:
    the steps are read once, in parts, and of those only the states of one part again."""

    def __init__(self, store: Store, id: str, kept: outbox.Kept | None) -> None:
        """`kept`: its row in the outbox, if it has one."""
        self._store, self._id, self._kept = store, id, kept
        self._seen: object = None
        #: looks since something changed.
        self._quiet = 0
        #: steps and queues: a part whose steps have not all ended, and the parts that follow it.
        self._part: Sequence[tuple[str, str]] = ()
        self._parts: Iterator[Sequence[tuple[str, str]]] = iter(())

    def look(self) -> Wait | None:
        """Return what to wait for; None if it does not run any more.  Raises WorkflowNotFound or a StoreError."""
        began = time.monotonic()
        info = reading.read(self._store, self._id)
        if info is None and self._kept is not None:
            if self._kept.exists():  # a worker sends it
                self._quiet = min(self._quiet + 1, 20)
                return Wait(None, 0.0, min(_SOONEST * 2**self._quiet, _SOON))
            info = reading.read(self._store, self._id)  # it was sent between the two looks, or its row was deleted
        if info is None:
            raise WorkflowNotFound(f"The workflow or batch {self._id!r} has left the store.")
        if info.state != "running":
            return None
        seen = (info.touched_at, info.ended, info.total)
        self._quiet = min(self._quiet + 1, 20) if seen == self._seen else 0
        self._seen = seen
        job = self._live_job(info.kind == "batch") if info.counts[LIVE] else None
        end = None if job is None else self._store.end_of(*job)
        pause = max(min(_SOONEST * 2**self._quiet, _SOON), _IDLE * (time.monotonic() - began))
        return Wait(end, min(2.0**self._quiet, _LATEST), pause)

    def _live_job(self, is_batch: bool) -> tuple[str, str] | None:
        """Return queue and id of a job that has not ended.  Goes on where the last one was, and once round."""
        for _ in range(2):
            while self._part:
                left, live = self._states(is_batch)
                if live is not None:
                    self._part = left
                    step, queue = live
                    return queue, step if is_batch else f"{self._id}.{step}"
                self._part = next(self._parts, ())
            self._parts = self._jobs() if is_batch else self._steps()
            self._part = next(self._parts, ())
        return None

    def _states(self, is_batch: bool) -> tuple[list[tuple[str, str]], tuple[str, str] | None]:
        """Return those of the part that have not ended, and the first of them whose job waits or runs."""
        steps = [step for step, _ in self._part]
        stands = self._store.workflow_fields(self._id, [f"s:{step}" for step in steps])
        waits = [None] * len(steps) if is_batch else self._store.workflow_fields(self._id, [f"l:{s}" for s in steps])
        left, live = [], None
        for place, stand, wait in zip(self._part, stands, waits, strict=True):
            state = LIVE if stand is None else reading.read_stand(stand).state
            if state == LIVE:
                left.append(place)
                live = live or (place if wait is None else None)
        return left, live

    def _steps(self) -> Iterator[Sequence[tuple[str, str]]]:
        offset = 0
        while rows := reading.outline(self._store, self._id, offset, CHUNK):
            yield [(str(offset + i), row.queue) for i, row in enumerate(rows)]
            offset += CHUNK

    def _jobs(self) -> Iterator[Sequence[tuple[str, str]]]:
        found = self._store.workflow_scan(self._id, "s:")
        while part := [(id, reading.read_stand(stand).queue) for id, stand in islice(found, CHUNK)]:
            yield part
