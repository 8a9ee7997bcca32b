"""The part of the store contract for changing jobs: admin, CLI and API call it through operations/actions.py.

Errors: StoreUnavailable, StoreFull, StoreCorrupt, StoreMisconfigured.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from django_jobs.core.values import FINISHED, Edited, State


class OperatingStore(ABC):
    """The methods by which users change jobs.  An id that does not exist, or is in a state not allowed, is ignored.

    A method that takes several ids handles all of them in one atomic step.
    """

    @abstractmethod
    def cancel(self, queue: str, ids: Sequence[str]) -> dict[str, State]:
        """waiting → cancelled.  A running job is asked to stop (`ctx.should_stop`), and becomes cancelled unless it
        succeeds or is dead.  Returns id → state after the call (CANCELLED, RUNNING, or unchanged) for the ids that
        exist."""

    @abstractmethod
    def revive(
        self,
        queue: str,
        ids: Sequence[str],
        *,
        record: bytes | None = None,
        at: int | None = None,
        start_again: bool = True,
    ) -> list[str]:
        """scheduled, retry, blocked, dead, cancelled, expired → queued, to run now.

        For a finished job, failures and crashes start again at 0 (the log stays).  With `record` (one id only), the
        record is replaced in the same step (a person edited the arguments); a unique key that the new record lacks is
        freed.  The lock is taken if it is free, except a lock for a period.  A job that was killed while it ran is
        blocked until that attempt has ended.  With `at` (ms, one id only), the job moves only if `JobInfo.at` still
        has that value, so that a repeated call does not revive the job after a later end.  With
        `start_again` False, a dead or cancelled job that is delivered at most once stays: it may have been started.
        Returns the ids that moved.  Raises ValueError for `record` or `at` with more or fewer ids than one."""

    @abstractmethod
    def edit(self, queue: str, id: str, record: bytes, *, was: bytes) -> Edited:
        """scheduled, queued, retry, blocked: replace the record `was` where the job waits; its turn and its time stay.

        The lock moves to a new unique key, with the rest of its period.  A job that waits for a limit, and now has
        another limit key, is queued again in its turn.  If the job's record is already `record`, the answer is EDITED,
        whatever the job's state."""

    @abstractmethod
    def delete(self, queue: str, ids: Sequence[str]) -> list[str]:
        """any state but running → deleted, with locks, log and result.  A job that was killed while it ran stays until
        that attempt has ended.  Returns the ids that were deleted."""

    @abstractmethod
    def kill(self, queue: str, ids: Sequence[str], reason: str) -> list[str]:
        """waiting or running → dead, with a line "killed" in the log, numbered 0 if no attempt ended with it.

        A running job loses its claim at once.  If the claim's holder has a lease, `extend` tells it to end the
        attempt, and the attempt keeps its slot until it has ended (see `extend`).  Returns the ids that moved."""

    @abstractmethod
    def reschedule(self, queue: str, ids: Sequence[str], run_at: int) -> list[str]:
        """scheduled, retry, queued, blocked → scheduled (retry stays retry) at `run_at` ms.  Returns the moved ids."""

    @abstractmethod
    def ids(self, queue: str, state: State, cursor: str = "", limit: int = 1000) -> tuple[list[str], str]:
        """Walk through the ids in one state, in batches.  Jobs that enter or leave the state meanwhile may be missed;
        no other job is.  An id may come twice, in two batches, if the number of jobs in the state changes much
        meanwhile: a caller counts the jobs that it changed, not the ids.  Returns ids and the next cursor ("" = the
        end).  Raises ValueError for a cursor that it cannot read."""

    @abstractmethod
    def restore(self, queue: str, id: str, record: bytes, state: State) -> bool:
        """Put a finished job back as it was (to undo a delete; for tests).  False if the id exists.  Raises ValueError
        if the state is not a finished one: the job would run, without what `enqueue` checks."""


def check_finished(state: State) -> None:
    """Raise ValueError unless `restore` may put a job into that state."""
    if state not in FINISHED:
        raise ValueError(f"restore puts back finished jobs; {state} is not one of {sorted(FINISHED)}.")
