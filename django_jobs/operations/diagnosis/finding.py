"""One thing that is wrong: its kind, how urgent it is, what it concerns, since when, and what helps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlencode

from django.utils.translation import gettext as _

from django_jobs.formatting import duration, exact, number, plain
from django_jobs.operations.diagnosis.causes import ACTS, COUNTED, KINDS, PLAIN, WIDER

#: Longest name or reason in a sentence.
LENGTH = 120


class Severity(StrEnum):
    """How urgent a finding is."""

    #: jobs do not run, or may be lost.
    ERROR = "error"
    #: something is not as it should be, and jobs run.
    WARNING = "warning"
    #: somebody has done it on purpose, or it was decided by a setting; it must be seen.
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.  The sentences are in the language that is active when they are read."""

    #: a key of CAUSES: finer than the kind.
    cause: str
    severity: Severity
    #: ms by the store's clock; 0 = not known.
    since: int = 0
    queue: str = ""
    #: jobs, attempts, queues, percent or ms, as the cause says.
    number: int = 0
    #: a worker, job type, schedule, workflow, policy or reason, as the cause says.
    detail: str = ""
    #: the text of somebody else that explains it: why it is paused, an error.
    reason: str = ""
    #: the job at which to look first.
    job: str = ""
    #: more values of the sentence; `name_ms` is a time, and %(name)s in it.
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return KINDS[self.cause][0]

    @property
    def topic(self) -> str:
        """One word that groups findings in `jobs doctor`."""
        return KINDS[self.cause][1]

    @property
    def subject(self) -> str:
        """What it concerns: a worker, job type, schedule or workflow, a queue, or the store."""
        named = self.detail.partition("\t")[0] if self.kind != "store" else ""
        return named or self.queue or ("store" if self.kind == "store" else self.topic)

    @property
    def key(self) -> str:
        """What makes it the same finding at another time: that of another job or workflow is another."""
        return self._key(self.job if self.cause in OF_A_JOB or self.cause in OF_A_WORKFLOW else "")

    @property
    def told_as(self) -> str:
        """The key under which NOTIFY tells it.  Jobs of one type that hang are told once: there may be hundreds."""
        return self._key(self.job if self.cause in OF_A_WORKFLOW else "")

    def _key(self, which: str) -> str:
        return "\t".join((self.cause, self.queue, self.detail, which))

    def covers(self, key: str) -> bool:
        """Return whether it stands in the place of the finding that is told under this key, which is not over."""
        cause, queue, detail, _job = parts_of(key)
        if WIDER.get(self.cause) != cause:
            return False
        name = str(self.more["type"]) if self.cause in ("hung_workflow", "hung_batch") else self.detail
        return not self.queue or (queue, detail) == (self.queue, name)

    @property
    def says(self) -> str:
        """One sentence, without the time since when."""
        name, _tab, form = self.detail.partition("\t")
        newer = _("%(name)s in record format %(n)s (a newer django_jobs)")
        detail = newer % {"name": cut(name), "n": form} if form else name or self.queue  # a pause of the queue itself
        values = {"n": number(self.number), "queue": cut(self.queue), "name": cut(detail), "job": cut(self.job)}
        values |= {key.removesuffix("_ms"): shown(key, value) for key, value in self.more.items()}
        if self.cause in COUNTED:
            return COUNTED[self.cause](self.number) % values
        values["time"] = duration(self.number) if self.cause in IN_MS else exact(self.since)
        return PLAIN[self.cause]() % values

    @property
    def act(self) -> str:
        """What helps; "" if the sentence says it."""
        if self.cause == "failing" and not self.reason:  # of further types the error is not read
            return ""
        return ACTS[self.cause]() if self.cause in ACTS else ""

    @property
    def link(self) -> tuple[str, tuple[str, ...], str]:
        """The page of the console that shows the cause: the name of its address, its parts, the query."""
        return LINKS.get(self.cause, _queue)(self)


def parts_of(key: str) -> tuple[str, str, str, str]:
    """Return cause, queue, detail and job of a key."""
    cause, _, rest = key.partition("\t")
    queue, _, rest = rest.partition("\t")
    detail, _, job = rest.rpartition("\t")
    return cause, queue, detail, job


#: Causes that concern one job, or one workflow.
OF_A_JOB = frozenset({"hung", "hung_workflow", "hung_batch", "overrun"})
OF_A_WORKFLOW = frozenset({"stopped_workflow", "open_batch"})
#: Causes whose number is a time in ms.
IN_MS = frozenset({"latency", "hung_queue", "neglected", "silent", "clock", "overrun"})

Link = tuple[str, tuple[str, ...], str]


def _queue(found: Finding) -> Link:
    return ("queue", (found.queue,), "") if found.queue else ("queues", (), "")


def _job(found: Finding) -> Link:
    return "job", (str(found.more.get("in", found.queue)), found.job), ""


def _worker(found: Finding) -> Link:
    return ("worker", (found.detail,), "") if found.cause != "no_workers" else ("workers", (), "")


def _jobs(state: str, **more: str) -> Callable[[Finding], Link]:
    def link(found: Finding) -> Link:
        asked = more | ({"queue": found.queue} if found.queue else {})
        name = found.detail.partition("\t")[0]
        return "jobs", (state,), f"?{urlencode(asked | ({'name': name} if name else {}))}"

    return link


def _failed(found: Finding) -> Link:
    state = str(found.more.get("state", ""))  # none: its jobs were discarded, or have been retried
    return _jobs(state, group="1")(found) if state else _queue(found)


def _page(name: str, query: str = "") -> Callable[[Finding], Link]:
    return lambda found: (name, (), query)


#: Cause → the page; that of the queue for all others.
LINKS: Mapping[str, Callable[[Finding], Link]] = {
    **dict.fromkeys(("hung", "hung_queue", "hung_workflow", "hung_batch", "overrun"), _job),
    **dict.fromkeys(("no_workers", "narrow", "silent", "child_silent", "clock", "neglected"), _worker),
    **dict.fromkeys(("dead", "trimmed"), _jobs("dead", group="1")),
    **dict.fromkeys(("retries", "retries_type"), _jobs("retry", group="1")),
    "failing": _failed,
    "notifier": _page("dashboard_changelist"),
    "overdue": lambda found: _jobs(str(found.more.get("state", "scheduled")))(found),
    "unknown": _jobs("blocked"),
    **dict.fromkeys(
        ("schedule_missed", "schedule_broken", "schedules_idle", "schedule_skipped", "schedule_paused"),
        _page("schedules"),
    ),
    **dict.fromkeys(
        ("read_only", "not_saved", "not_persistent", "evicts", "full", "nearly_full", "server_clock"), _page("store")
    ),
    **dict.fromkeys(("stopped_workflow", "open_batch"), lambda found: ("workflow", (found.job,), "")),
    "outbox": _page("outboxentry_changelist", "?is_held__exact=0"),
    "outbox_held": _page("outboxentry_changelist", "?is_held__exact=1"),
    "outbox_off": _page("outboxentry_changelist"),
}


def shown(key: str, value: Any) -> str:
    """Return one of `more` as a sentence shows it; None is not known yet."""
    if value is None:
        return _("not known yet")
    if isinstance(value, float):
        return f"{value:+.2f}"
    return cut(value) if isinstance(value, str) else duration(value) if key.endswith("_ms") else number(value)


def cut(text: str) -> str:
    """Return the text as a sentence shows it."""
    return plain(text, LENGTH)
