"""Whether a job fulfils the terms of a query.  Nothing that is hidden from the reader fulfils one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, override

from django_jobs.browse.query.parsing import Term
from django_jobs.core import registry
from django_jobs.core.definition import positional_names
from django_jobs.core.sensitive import HIDDEN, Call
from django_jobs.core.values import Job, JobInfo, State
from django_jobs.formatting import number
from django_jobs.serialization.display import readable
from django_jobs.serialization.masking import call_of, is_open, masked, shown_call
from django_jobs.serialization.payloads import searchable_text, worker_name
from django_jobs.serialization.record import enqueued_ms, job_in, name_of, tags_of

#: States whose jobs have no time of their own: they are chosen by the time of their enqueueing.
_ENQUEUED = frozenset({State.QUEUED, State.BLOCKED})
#: Stands for an argument that a job does not have.
_MISSING = object()


def fulfils(info: JobInfo, terms: Iterable[Term], *, arguments: bool = True) -> bool:
    """Return whether the job fulfils all terms.  `arguments`: the reader may see them."""
    return all(_fulfils(info, term, arguments) for term in terms)


def _fulfils(info: JobInfo, term: Term, arguments: bool) -> bool:
    value = term.value
    match term.field:
        case "name":
            return name_of(info.record) == registry.current_name(value)
        case "queue":
            return info.queue == value
        case "state":
            return info.state == value
        case "id":
            return info.id == value
        case "tag":
            return value in tags_of(info.record)
        case "before":
            return time_of(info) < ms_of(value)
        case "after":
            return time_of(info) >= ms_of(value)
        case "worker":
            return worker_name(info) == value
        case "release":
            return bool(info.attempts) and info.attempts[-1].release == value
        case "text":
            return value.casefold() in searchable_text(info, arguments=arguments).casefold()
        case "error":
            return value in _errors(masked(info, arguments=arguments))
    job = job_in(info)
    if job is None:
        return False
    if term.field == "scope":
        return job.options.scope == value
    # What is hidden is never compared: the time would tell somebody who tries values which of them is right.
    open_to_all = is_open(job.name, job.options.sensitive)
    found = _at(job, call_of(job), term.path) if open_to_all else argument(job, term.path)
    return arguments and same(term.json, found)


def _errors(info: JobInfo) -> tuple[str, ...]:
    last = info.attempts[-1] if info.attempts else None
    return names_of(last.error_name or last.outcome) if last else ()


def names_of(kind: str) -> tuple[str, str, str]:
    """Return the names of the class of an error: as Python prints it, whole, and without its module."""
    return kind, f"builtins.{kind}", kind.rpartition(".")[2]


def time_of(info: JobInfo) -> int:
    """Return the time (ms) by which a job is chosen: when it is due, started or ended, or was enqueued."""
    return enqueued_ms(info.record, info.at) if info.state in _ENQUEUED else info.at


def ms_of(text: str) -> int:
    """Return a time of a query in ms; without an offset, it is in the current time zone."""
    return round(_moment(text).timestamp() * 1000)


def fixed(term: Term) -> Term:
    """Return the term with the offset of its time: who looks for the jobs later may have another time zone."""
    return term._replace(value=_moment(term.value).isoformat()) if term.field in ("before", "after") else term


def _moment(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return timezone.make_aware(at) if timezone.is_naive(at) else at


def argument(job: Job, path: tuple[str, ...]) -> Any:
    """Return what a job has at this path, as it is stored; _MISSING if it has nothing there, or that is hidden."""
    found = _at(job, shown_call(job), path)
    return _MISSING if found == HIDDEN else found


def _at(job: Job, call: Call | None, path: tuple[str, ...]) -> Any:
    if call is None:
        return _MISSING
    args, kwargs = call
    found = kwargs.get(path[0], _MISSING)
    if found is _MISSING and args:
        definition = registry.find(job.name)
        names = positional_names(definition.signature) if definition else ()
        found = next((value for name, value in zip(names, args, strict=False) if name == path[0]), _MISSING)
    for key in path[1:]:
        found = _inside(found, key)
    return found


def _inside(value: Any, key: str) -> Any:
    if isinstance(value, dict) and "$tuple" in value:
        value = value["$tuple"]
    if isinstance(value, dict):
        return value.get(key, _MISSING)
    if isinstance(value, list) and key.isascii() and key.isdigit() and len(key) < 7 and int(key) < len(value):
        return value[int(key)]
    return _MISSING


def same(value: Any, stored: Any) -> bool:
    """Return whether a JSON value of a query is this stored value, of the same type.  A stored value that JSON has no
    type for, such as a date, is also the text that pages show for it."""
    if stored is _MISSING:
        return False
    if isinstance(value, bool) or isinstance(stored, bool):
        return value is stored
    if isinstance(stored, dict):
        match stored:
            case {"$int": str(digits)} if len(stored) == 1 and isinstance(value, int):
                return hex(value) == digits
            case {"$tuple": list(items)} if len(stored) == 1 and isinstance(value, list):
                return same(value, items)
        if isinstance(value, str) and len(stored) == 1:
            return next(iter(stored)).startswith("$") and readable(stored) == value
        return (
            isinstance(value, dict) and value.keys() == stored.keys() and all(same(value[k], stored[k]) for k in stored)
        )
    if isinstance(stored, list):
        return isinstance(value, list) and len(value) == len(stored) and all(map(same, value, stored))
    if isinstance(stored, int | float):
        return isinstance(value, int | float) and value == stored
    return type(value) is type(stored) and bool(value == stored)


class Notes:
    """What a search learns about its own terms: whether any job has their arguments, and where it could not look."""

    def __init__(self, terms: Iterable[Term], *, has_argument: bool = False, unknown: int = 0) -> None:
        self._paths = [term.path for term in terms if term.field == "arg"]
        #: a job that was checked has the arguments that the terms name.
        self.has_argument = has_argument or not self._paths
        #: number of jobs whose type this process does not know: of their arguments, only keywords were searched.
        self.unknown = unknown

    def see(self, info: JobInfo) -> None:
        """Note a job that was checked."""
        if not self._paths:
            return
        self.unknown += registry.find(name_of(info.record)) is None
        if not self.has_argument and (job := job_in(info)):
            self.has_argument = all(argument(job, path) is not _MISSING for path in self._paths)

    def texts(self) -> list[str]:
        """Return what is to be said about it, in the active language."""
        paths = ", ".join(f"arg.{'.'.join(path)}" for path in self._paths)
        said = [] if self.has_argument else [_("No job that was checked has %(argument)s.") % {"argument": paths}]
        if self.unknown:
            text = ngettext(
                "Of %(n)s of these jobs, only keyword arguments that are not hidden were searched: "
                "this process does not know its type.",
                "Of %(n)s of these jobs, only keyword arguments that are not hidden were searched: "
                "this process does not know their types.",
                self.unknown,
            )
            said.append(text % {"n": number(self.unknown)})
        return said

    def sentences(self) -> list[str]:
        """Return the same for programs and the command line, in English."""
        with override("en"):
            return self.texts()
