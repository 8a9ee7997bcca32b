"""What the fleet remembers of schedules beside their last fire: since when they are known, pauses, fires left out.

All of it is in one small document of the store, an entry per fact, so that processes never overwrite each other's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django_jobs.schedules.entry import Entry
from django_jobs.stores.contract.store import Store

DOCUMENT = "schedules"


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """The document as it was read."""

    facts: dict[str, Any]

    def since(self, entry: Entry) -> int | None:
        """ms: fire times up to then are no concern of this schedule; None = it was never seen."""
        return self._ms(_since(entry))

    def passed_over(self, entry: Entry) -> int:
        """ms: the last fire time that was left out on purpose; 0 = none."""
        return self._ms(f"passed:{entry.id}") or 0

    def paused_at(self, entry: Entry) -> int | None:
        """ms since when it is paused; None = it is not."""
        return self._ms(f"paused:{entry.id}")

    def _ms(self, fact: str) -> int | None:
        """What is no time counts as unknown: one damaged entry must stop no schedule."""
        value = self.facts.get(fact)
        return value if isinstance(value, int) else None


def read_state(store: Store) -> ScheduleState:
    """One read."""
    return ScheduleState(store.get_document(DOCUMENT))


def begin(store: Store, entry: Entry, now: int) -> None:
    """The schedule counts from now: it is new, was changed, or was resumed.  Nothing before was missed."""
    store.update_document(DOCUMENT, {_since(entry): now})


def forget(store: Store, entry: Entry) -> None:
    """The schedule is switched off: switched on again it begins anew."""
    store.update_document(DOCUMENT, {_since(entry): None, f"passed:{entry.id}": None})


def pass_over(store: Store, entry: Entry, fire: int) -> None:
    """This fire time is left out, and not made up for later."""
    store.update_document(DOCUMENT, {f"passed:{entry.id}": fire})


def pause(store: Store, entry: Entry, now: int) -> None:
    """No more fires, in the whole fleet, from the next tick on."""
    store.update_document(DOCUMENT, {f"paused:{entry.id}": now})


def resume(store: Store, entry: Entry, now: int) -> None:
    """Fires go on; those of the pause are not made up for."""
    store.update_document(DOCUMENT, {_since(entry): now, f"paused:{entry.id}": None})


def _since(entry: Entry) -> str:
    return f"since:{entry.times}:{entry.id}"
