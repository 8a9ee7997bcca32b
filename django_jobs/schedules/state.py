"""The shared state of schedules: when each began, its last run, pauses, skipped runs.

All of it is in one small document of the store, one entry per fact, so that processes do not overwrite each other.  A
fact belongs to the schedule, whatever its job and queue are now.

When a schedule began is a fact of its form: the schedule with one expression and time zone.  During a deployment, old
workers may use one form, and new workers another.  A worker marks the forms that it does not have as gone, and each
worker removes the marks of its own forms.  So a mark that stays says since when no worker has had the form.  The
schedule itself, whatever its form, is marked in the same way.  What was gone for thirty days is forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.schedules.entry import ScheduleEntry
from django_jobs.serialization.checked import is_moment

if TYPE_CHECKING:
    from django_jobs.stores.redis import Store

DOCUMENT = "schedules"
#: ms: a mark that is younger says nothing, because the worker that has the form may not have looked since.
MARK_COUNTS = 60_000
#: ms: what no worker has had for so long is forgotten.
GONE_FOR_GOOD = 30 * 86_400_000
#: In the place of a form: the schedule with any expression and time zone.
ANY = "any:"
#: The facts of a schedule, whatever its form.
_OF_SCHEDULE = ("fired:", "passed:", "paused:")


class LastRun(NamedTuple):
    """The last run of a schedule for which it enqueued a job."""

    #: the scheduled time, ms; 0 = there was none.
    at: int
    #: where the job was enqueued.
    queue: str


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """The document as of one read."""

    facts: dict[str, Any]

    def since(self, entry: ScheduleEntry) -> int | None:
        """ms: scheduled times up to this moment do not count for this schedule; None = it was never seen."""
        return self._ms(f"since:{form_of(entry)}")

    def last_run(self, entry: ScheduleEntry) -> LastRun:
        """Return its last run.  An invalid one counts as none."""
        return _read_run(self.facts.get(f"fired:{entry.id}")) or LastRun(0, "")

    def passed_over(self, entry: ScheduleEntry) -> int:
        """ms: the last run that was skipped on purpose; 0 = none."""
        return self._ms(f"passed:{entry.id}") or 0

    def paused_at(self, entry: ScheduleEntry) -> int | None:
        """ms since when it is paused; None = it is not."""
        return self._ms(f"paused:{entry.id}")

    def forms(self) -> set[str]:
        """Return the forms that have begun, and the schedules with any stored fact."""
        begun = {fact.removeprefix("since:") for fact in self.facts if fact.startswith("since:")}
        return begun | {ANY + fact.partition(":")[2] for fact in self.facts if fact.startswith(_OF_SCHEDULE)}

    def gone_at(self, form: str) -> int | None:
        """ms since when it is marked as gone; None = it is not."""
        return self._ms(f"gone:{form}")

    def unreadable(self) -> list[str]:
        """Return the names of the facts that are damaged.  They count as unknown."""
        return [
            fact
            for fact, value in self.facts.items()
            if not (_read_run(value) if fact.startswith("fired:") else is_moment(value))
        ]

    def _ms(self, fact: str) -> int | None:
        """Return a time (ms).  An invalid one counts as unknown: one damaged entry must not stop a schedule."""
        value = self.facts.get(fact)
        return value if is_moment(value) else None


def _read_run(value: Any) -> LastRun | None:
    match value:
        case [at, str(queue)] if is_moment(at):
            return LastRun(at, queue)
    return None


def read_state(store: Store) -> ScheduleState:
    """Read the document."""
    return ScheduleState(store.get_document(DOCUMENT))


def begin(store: Store, entry: ScheduleEntry, now: int) -> None:
    """Start the schedule now, because it is new, was changed or was resumed: earlier runs were not missed."""
    store.update_document(DOCUMENT, {f"since:{form_of(entry)}": now})


def forget(store: Store, entry: ScheduleEntry) -> None:
    """Forget a schedule that was switched off: when switched on again, it starts anew."""
    store.update_document(DOCUMENT, {f"since:{form_of(entry)}": None, f"passed:{entry.id}": None})


def pass_over(store: Store, entry: ScheduleEntry, scheduled: int) -> None:
    """Skip this run for ever."""
    store.update_document(DOCUMENT, {f"passed:{entry.id}": scheduled})


def note_runs(store: Store, runs: Mapping[str, LastRun]) -> None:
    """Note the last runs of schedules.  `runs`: schedule id → its last run."""
    store.update_document(DOCUMENT, {f"fired:{id}": list(run) for id, run in runs.items()})


def take_up(
    store: Store, state: ScheduleState, now: int, forms: Collection[str], new: Collection[str]
) -> ScheduleState:
    """Remove the marks of the forms that this worker has; `new`: those that it did not have before.  If one of these
    was gone, it begins now: times that passed meanwhile were not missed.  Returns the state after it."""
    changes: dict[str, int | None] = {}
    for form in forms:
        gone_at = state.gone_at(form)
        if f"gone:{form}" in state.facts:
            changes[f"gone:{form}"] = None
        if gone_at is not None and form in new and now - gone_at > MARK_COUNTS and not form.startswith(ANY):
            changes[f"since:{form}"] = now
    return _changed(store, state, changes)


def mark_gone(store: Store, state: ScheduleState, now: int, forms: Iterable[str]) -> ScheduleState:
    """Mark forms that this worker does not have, unless they are marked.  Returns the state after it."""
    return _changed(store, state, {f"gone:{form}": now for form in forms if state.gone_at(form) is None})


def forget_gone(store: Store, state: ScheduleState, now: int) -> ScheduleState:
    """Forget what no worker has had for thirty days.  Returns the state after it."""
    marked = (fact.removeprefix("gone:") for fact in state.facts if fact.startswith("gone:"))
    gone = [form for form in marked if now - (state.gone_at(form) or 0) > GONE_FOR_GOOD]
    ids = [form.removeprefix(ANY) for form in gone if form.startswith(ANY)]
    if ids:
        store.forget_runs(store.queues(), ids)
    facts = [f"{kind}{form}" for form in gone for kind in ("since:", "gone:")]
    facts += [f"{kind}{id}" for id in ids for kind in _OF_SCHEDULE]
    return _changed(store, state, {fact: None for fact in facts if fact in state.facts})


def drop(store: Store, state: ScheduleState, forms: Iterable[str]) -> ScheduleState:
    """Forget forms that this worker has had until now: a row was changed or deleted.  Returns the state after it."""
    facts = (f"{fact}:{form}" for form in forms for fact in ("since", "gone"))
    return _changed(store, state, {fact: None for fact in facts if fact in state.facts})


def _changed(store: Store, state: ScheduleState, changes: Mapping[str, int | None]) -> ScheduleState:
    if not changes:
        return state
    store.update_document(DOCUMENT, changes)
    facts = {**state.facts, **changes}
    return ScheduleState({fact: value for fact, value in facts.items() if value is not None})


def pause(store: Store, entry: ScheduleEntry, now: int) -> bool:
    """Pause it in the whole fleet, from the next tick on.  Returns False if it was paused already."""
    key = f"paused:{entry.id}"
    return store.update_document(DOCUMENT, {key: now}, expected={key: None})


def resume(store: Store, entry: ScheduleEntry, paused: int, now: int) -> bool:
    """Let it run again; runs that were due in the pause are not run later.  Returns False if this pause has ended."""
    key = f"paused:{entry.id}"
    return store.update_document(DOCUMENT, {f"since:{form_of(entry)}": now, key: None}, expected={key: paused})


def form_of(entry: ScheduleEntry) -> str:
    """Return the form of a schedule that this entry is."""
    return f"{entry.times}:{entry.id}"
