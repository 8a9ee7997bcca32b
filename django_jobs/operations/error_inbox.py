"""The error inbox: every error of failed attempts, remembered beyond its jobs, and what people decided about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, NamedTuple

from django_jobs.browse.counts import queue_names
from django_jobs.browse.match import error_key
from django_jobs.core import registry
from django_jobs.core.outcome import clean
from django_jobs.operations.releases import releases
from django_jobs.serialization.checked import is_moment
from django_jobs.serialization.masking import is_open
from django_jobs.serialization.payloads import iso
from django_jobs.stores import get_store
from django_jobs.stores.values.errors import KeptError, Seen

State = Literal["new", "resolved", "ignored"]
STATES: tuple[State, ...] = ("new", "resolved", "ignored")
#: The document of decisions: signature → [state, note, by, at (ms), newest release in which it was seen until then].
DOCUMENT = "errors"
#: Characters of a note; decisions about errors that are forgotten are kept up to this number.
LONGEST_NOTE, MOST_DECISIONS = 500, 2_000


class Decision(NamedTuple):
    """What somebody decided about an error."""

    state: State
    note: str
    by: str
    at: int
    release: str


@dataclass(frozen=True, slots=True)
class Error:
    """One error: its exception and the place in the project's code, over all queues.  Times in ms."""

    #: the filter `error` of the lists of jobs, too.
    id: str
    signature: str
    type: str
    #: "": it came from none of the project's code; then errors are told apart by their messages.
    frame: str
    #: what its messages have in common, as far as the reader may see it.
    shape: str
    seen: Seen
    first_release: str
    #: day → how often.
    days: dict[date, int] = field(default_factory=dict)
    releases: dict[str, Seen] = field(default_factory=dict)
    #: job type → how often; the same of queues.
    types: dict[str, int] = field(default_factory=dict)
    queues: dict[str, int] = field(default_factory=dict)
    #: the latest different messages, newest first.
    messages: list[str] = field(default_factory=list)
    decision: Decision | None = None
    #: the newer release in which it was seen after it had been resolved; None = it was not.
    came_back: str | None = None

    @property
    def state(self) -> State:
        """Is it resolved or ignored?  One that came back is new."""
        return "new" if self.decision is None or self.came_back is not None else self.decision.state

    @property
    def last_release(self) -> str:
        """The release in which it was seen last; "" = not known."""
        return max(self.releases, key=lambda name: self.releases[name].last, default="")

    @property
    def place(self) -> str:
        """Where it came from, or what its messages have in common."""
        return self.frame or self.shape

    @property
    def subject(self) -> str:
        """How the audit log names it."""
        return f"{self.type} {self.frame}".strip()[:200]

    @property
    def note(self) -> str:
        return self.decision.note if self.decision else ""

    def as_json(self) -> dict[str, Any]:
        """Return it as commands and the API give it, without its messages."""
        return {
            "id": self.id,
            "type": self.type,
            "frame": self.frame,
            "count": self.seen.number,
            "first_seen": iso(self.seen.first),
            "last_seen": iso(self.seen.last),
            "state": self.state,
            "first_release": self.first_release or None,
            "last_release": self.last_release or None,
            "came_back": self.came_back is not None,
            "note": self.note,
            "by": self.decision.by if self.decision else None,
            "days": {day.isoformat(): number for day, number in sorted(self.days.items())},
            "types": self.types,
            "queues": self.queues,
        }


class Inbox(NamedTuple):
    """The errors, those seen last first; what is not among them."""

    errors: list[Error]
    #: errors that were forgotten because a queue remembers no more, and queues that were not read.
    forgotten: int
    left_out: list[str]


def inbox(queues: Sequence[str] | None = None, *, arguments: bool = True) -> Inbox:
    """Return all errors that are remembered.  `arguments`: the reader may see them, and so the messages of errors."""
    names = list(queue_names() if queues is None else queues)
    kept, left_out = get_store().errors(names)
    forgotten = sum(stats.totals.get("errors_forgotten", 0) for stats in get_store().stats(names)) if names else 0
    errors = _added_up(kept, get_store().get_document(DOCUMENT), releases(), arguments)
    return Inbox(sorted(errors, key=lambda each: (-each.seen.last, each.id)), forgotten, left_out)


def remembered(queues: Sequence[str]) -> set[str]:
    """Return the ids of the errors that these queues remember."""
    return set(map(error_key, get_store().error_signatures(queues)))


def find(id: str, *, arguments: bool = True) -> Error | None:
    names = queue_names()
    signature = next((each for each in get_store().error_signatures(names) if error_key(each) == id), None)
    kept = get_store().errors(names, [signature])[0] if signature is not None else ()
    return next(iter(_added_up(kept, get_store().get_document(DOCUMENT), releases(), arguments)), None)


def _added_up(
    kept: Iterable[KeptError], decided: Mapping[str, Any], known: Mapping[str, int], arguments: bool
) -> list[Error]:
    found: dict[str, Error] = {}
    messages: dict[str, dict[str, Seen]] = {}
    for each in kept:
        error = found.get(each.signature)
        if error is None:
            shape = each.signature.partition(": ")[2]
            error = Error(
                error_key(each.signature), each.signature, each.type, each.frame, shape, each.seen, each.first_release
            )
            error = replace(error, decision=_read(decided.get(each.signature)))
        else:
            first = each if each.seen.first < error.seen.first else error
            error = replace(error, first_release=first.first_release, seen=error.seen.plus(each.seen))
        found[each.signature] = error
        for number, part in each.days.items():
            day = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=number)).date()
            error.days[day] = error.days.get(day, 0) + part.number
        for name, part in each.types.items():
            name = registry.current_name(name)
            error.types[name] = error.types.get(name, 0) + part.number
        error.queues[each.queue] = error.queues.get(each.queue, 0) + each.seen.number
        said = messages.setdefault(each.signature, {})
        for source, target in ((each.releases, error.releases), (each.messages, said)):
            for key, part in source.items():
                target[key] = target[key].plus(part) if key in target else part
    return [_judged(error, messages[signature], known, arguments) for signature, error in found.items()]


def _judged(error: Error, said: Mapping[str, Seen], known: Mapping[str, int], arguments: bool) -> Error:
    """Return the error with its messages, and with whether it came back.  Messages may quote arguments, and so may what
    stands for the place of an error that has no frame: they are shown to those who may see the arguments."""
    error = replace(error, came_back=_came_back(error, known))
    if arguments and all(map(is_open, error.types)):
        return replace(error, messages=sorted(said, key=lambda text: -said[text].last))
    return error if error.frame else replace(error, shape="…")


def _came_back(error: Error, known: Mapping[str, int]) -> str | None:
    """Return the newer release in which a resolved error was seen after that; None if it was not.

    Newer than all in which it had been seen until then: the release with the fix may have run already, beside an old
    one.  Without any release, everything that is seen later is newer."""
    decision = error.decision
    if decision is None or decision.state != "resolved":
        return None
    later = {name: part for name, part in error.releases.items() if part.last > decision.at}
    if not decision.release:
        return error.last_release if error.seen.last > decision.at else None
    before = _order(decision.release, error, known)
    newer = [name for name in later if name != decision.release and _order(name, error, known) > before]
    return max(newer, key=lambda name: later[name].last, default=None)


def _order(name: str, error: Error, known: Mapping[str, int]) -> int:
    """When a release first appeared; one that is not remembered any more is older than those that are."""
    return known.get(name, error.releases[name].first if name in error.releases and not known else 0)


def _read(value: Any) -> Decision | None:
    match value:
        case [("new" | "resolved" | "ignored") as state, str(note), str(by), at, str(release)] if is_moment(at):
            return Decision(state, clean(note, LONGEST_NOTE * 4), clean(by, 254), at, release)
    return None


# -- acts ------------------------------------------------------------------------


def decide(error: Error, *, by: str, state: State | None = None, note: str | None = None) -> Error:
    """Resolve or ignore an error, let it be new again, or write a note about it.  What is not given stays as it is.

    Returns the error as it is now: `error` itself if it was so before.  The caller writes the audit log.  Raises
    ValueError for a note that is too long."""
    if note is not None and len(note) > LONGEST_NOTE:
        raise ValueError(f"A note has at most {LONGEST_NOTE} characters.")
    said = clean(note, LONGEST_NOTE * 4) if note is not None else error.note
    if state in (None, error.state) and said == error.note:
        return error
    before, now = error.decision, get_store().now()
    if state is None:
        at, release = (before.at, before.release) if before else (now, "")
        state = before.state if before else "new"
    else:
        known = releases()
        at, release = now, max(error.releases, key=lambda name: _order(name, error, known), default="")
        error = replace(error, came_back=None)
    decision = Decision(state, said, by, at, release)
    get_store().update_document(DOCUMENT, _over(error.signature) | {error.signature: list(decision)})
    return replace(error, decision=decision)


def _over(signature: str) -> dict[str, None]:
    """Return the oldest decisions, if there are too many: errors are forgotten, and decisions must not pile up."""
    decided = get_store().get_document(DOCUMENT)
    known = sorted(decided, key=lambda key: read.at if (read := _read(decided[key])) else 0)
    return dict.fromkeys(each for each in known[: max(0, len(known) + 1 - MOST_DECISIONS)] if each != signature)
