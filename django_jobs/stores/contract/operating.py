"""The part of the store contract that people use to act: admin, CLI and API come here through operations/actions.py."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from django_jobs.core.values import Edited, State


class OperatingStore(ABC):
    """How people move jobs.  Ids that are not there, or not in a state the verb applies to, are left alone."""

    @abstractmethod
    def cancel(self, queue: str, ids: Sequence[str]) -> dict[str, State]:
        """waiting → cancelled; a running job is asked to stop (`ctx.should_stop`) and becomes cancelled unless it
        succeeds or is dead.  Returns id → state afterwards (CANCELLED, RUNNING, or what it was) of those that exist."""

    @abstractmethod
    def revive(
        self, queue: str, ids: Sequence[str], *, record: bytes | None = None, at: int | None = None
    ) -> list[str]:
        """scheduled, retry, blocked, dead, cancelled, expired → queued, now.

        From a finished state failures and crashes start again at 0 (the log stays).  With `record` (one id only)
        the record is replaced in the same step: arguments edited by a person; a unique key that it no longer has is
        freed.  The lock is taken where it is free, unless for a period.  A job that was killed while it ran is blocked
        until that attempt has ended.  With `at` (one id only) it moves only if `JobInfo.at` is still that: a call that
        comes again later revives no later end.  Returns the ids that moved."""

    @abstractmethod
    def edit(self, queue: str, id: str, record: bytes, *, was: bytes) -> Edited:
        """scheduled, queued, retry, blocked: the record `was` is replaced where the job waits; turn and time stay.

        The lock goes over to a new unique key, with what is left of a period.  A job that waits for a limit and has
        another limit key now is queued again in its turn.  A job that has this very record already is EDITED,
        whatever its state."""

    @abstractmethod
    def delete(self, queue: str, ids: Sequence[str]) -> list[str]:
        """any but running → gone, with locks, log and result.  One that was killed while it ran stays until that
        attempt has ended.  Returns the ids that went."""

    @abstractmethod
    def kill(self, queue: str, ids: Sequence[str], reason: str) -> list[str]:
        """waiting or running → dead, with an attempt "killed" in the log.  A running one loses its claim at once.
        If its holder has a lease, `extend` tells that one to end it, and until it has ended (see there) the attempt
        keeps its slot.  Returns the ids that moved."""

    @abstractmethod
    def reschedule(self, queue: str, ids: Sequence[str], run_at: int) -> list[str]:
        """scheduled, retry, queued, blocked → scheduled (retry stays retry) at `run_at` ms."""

    @abstractmethod
    def pause(self, queue: str, *, name: str | None = None, reason: str = "", until: int = 0) -> None:
        """Close the queue, or one job type in it.  Running jobs finish.  `until` ms: opens by itself."""

    @abstractmethod
    def resume(self, queue: str, *, name: str | None = None) -> None:
        """Open it again.  Blocked jobs of a type come back in batches, by this call and by later claims."""

    @abstractmethod
    def ids(self, queue: str, state: State, cursor: str = "", limit: int = 1000) -> tuple[list[str], str]:
        """Walk the ids in one state, each once, in batches; jobs that enter or leave meanwhile may be missed or
        not, no other is.  Returns ids and the next cursor ("" = the end)."""

    @abstractmethod
    def restore(self, queue: str, id: str, record: bytes, state: State) -> bool:
        """Put a finished job back as it was (undo of delete; tests).  False if the id exists."""

    # -- the fleet -----------------------------------------------------------

    @abstractmethod
    def publish_worker(self, name: str, info: Mapping[str, Any], ttl: int) -> list[str]:
        """Say that this `runworkers` parent lives (for `ttl` ms) and what it does.  Returns the commands that were
        sent to it since ("stop", "quiet"), each once."""

    @abstractmethod
    def forget_worker(self, name: str) -> None:
        """The parent ended."""

    @abstractmethod
    def command_worker(self, name: str, command: str) -> bool:
        """Send "stop" or "quiet" to a parent; it reads it at its next heartbeat.  False: no such worker."""

    @abstractmethod
    def get_document(self, key: str) -> dict[str, Any]:
        """A small JSON object of the fleet's (paused schedules, bulk operations, remote types' version…); {} if
        there is none.  An entry that cannot be read is None."""

    @abstractmethod
    def update_document(self, key: str, changes: Mapping[str, Any]) -> None:
        """Set some of its entries, each atomically; a value None removes the entry."""
