"""The shared state of schedules, besides their last runs: when each began, pauses, skipped runs.

All of it is in one small document of the store, one entry per fact, so that processes do not overwrite each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_jobs.schedules.entry import Entry

if TYPE_CHECKING:
    from django_jobs.stores.redis import Store

DOCUMENT = "schedules"


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """The document as of one read."""

    facts: dict[str, Any]

    def since(self, entry: Entry) -> int | None:
        """ms: scheduled times up to this moment do not count for this schedule; None = it was never seen."""
        return self._ms(_since(entry))

    def passed_over(self, entry: Entry) -> int:
        """ms: the last run that was skipped on purpose; 0 = none."""
        return self._ms(f"passed:{entry.id}") or 0

    def paused_at(self, entry: Entry) -> int | None:
        """ms since when it is paused; None = it is not."""
        return self._ms(f"paused:{entry.id}")

    def _ms(self, fact: str) -> int | None:
        """Return a time (ms).  An invalid one counts as unknown: one damaged entry must not stop a schedule."""
        value = self.facts.get(fact)
        return value if isinstance(value, int) else None


def read_state(store: Store) -> ScheduleState:
    """Read the document."""
    return ScheduleState(store.get_document(DOCUMENT))


def begin(store: Store, entry: Entry, now: int) -> None:
    """Start the schedule now, because it is new, was changed or was resumed: earlier runs were not missed."""
    store.update_document(DOCUMENT, {_since(entry): now})


def forget(store: Store, entry: Entry) -> None:
    """Forget a schedule that was switched off: when switched on again, it starts anew."""
    store.update_document(DOCUMENT, {_since(entry): None, f"passed:{entry.id}": None})


def pass_over(store: Store, entry: Entry, scheduled: int) -> None:
    """Skip this run for ever."""
    store.update_document(DOCUMENT, {f"passed:{entry.id}": scheduled})


def pause(store: Store, entry: Entry, now: int) -> None:
    """Pause it in the whole fleet, from the next tick on."""
    store.update_document(DOCUMENT, {f"paused:{entry.id}": now})


def resume(store: Store, entry: Entry, now: int) -> None:
    """Let it run again; runs that were due in the pause are not run later."""
    store.update_document(DOCUMENT, {_since(entry): now, f"paused:{entry.id}": None})


def _since(entry: Entry) -> str:
    return f"since:{entry.times}:{entry.id}"
