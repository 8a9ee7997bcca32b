"""The sentence of each alarm, in the language of the reader, and the page on which it can be dealt with."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_jobs.alarms.facts import Unchecked
from django_jobs.alarms.rules import Alarm
from django_jobs.formatting import duration, exact, number

#: Longest name or reason in a sentence.
LENGTH = 120

#: kind → the subject under which `jobs doctor` lists it.
KINDS = {
    "no_workers": "workers", "no_worker": "workers", "narrow": "workers",
    "overdue": "scheduled", "latency": "latency", "unknown": "names", "failing": "failures", "retries": "retries",
    "dead": "dead", "paused": "queues", "type_paused": "queues", "trimmed": "queues",
    "schedule_missed": "schedules", "schedule_broken": "schedules", "schedules_idle": "schedules",
    "archive": "archive", "archive_full": "archive", "not_archived": "archive",
    "read_only": "role", "not_saved": "persistence", "not_persistent": "persistence",
    "evicts": "eviction", "full": "memory", "nearly_full": "memory",
}  # fmt: skip


def subject_of(alarm: Alarm) -> str:
    """Return one word that groups alarms of the same subject."""
    return KINDS[alarm.kind]


def text_of(alarm: Alarm) -> str:
    """Return one sentence, without the time since when."""
    name, _tab, form = alarm.detail.partition("\t")
    newer = _("%(name)s in record format %(n)s (a newer django_jobs)")
    detail = newer % {"name": cut(name), "n": form} if form else name
    n, values = alarm.number, {"n": number(alarm.number), "queue": cut(alarm.queue), "name": cut(detail)}
    if alarm.kind in COUNTED:
        return COUNTED[alarm.kind](n) % values
    values["time"] = duration(alarm.number) if alarm.kind == "latency" else exact(alarm.since)
    return PLAIN[alarm.kind]() % values


COUNTED: dict[str, Callable[[int], str]] = {
    "no_workers": lambda n: ngettext(
        "%(n)s job is waiting, and no worker is running.",
        "%(n)s jobs are waiting, and no worker is running.",
        n,
    ),
    "no_worker": lambda n: ngettext(
        "%(n)s job of %(queue)s is waiting, and no worker serves this queue.",
        "%(n)s jobs of %(queue)s are waiting, and no worker serves this queue.",
        n,
    ),
    "narrow": lambda n: ngettext(
        "The store is too slow for the leases of %(name)s. It claims no jobs from %(n)s of its queues.",
        "The store is too slow for the leases of %(name)s. It claims no jobs from %(n)s of its queues.",
        n,
    ),
    "overdue": lambda n: ngettext(
        "%(n)s job of %(queue)s is overdue: it was due more than a minute ago and has not been started.",
        "%(n)s jobs of %(queue)s are overdue: they were due more than a minute ago and have not been started.",
        n,
    ),
    "unknown": lambda n: ngettext(
        "%(n)s job named %(name)s in %(queue)s waits for a worker that knows it. No running worker does.",
        "%(n)s jobs named %(name)s in %(queue)s wait for a worker that knows them. No running worker does.",
        n,
    ),
    "failing": lambda n: ngettext(
        "%(n)s attempt has failed in the last five minutes, more than usual.",
        "%(n)s attempts have failed in the last five minutes, more than usual.",
        n,
    ),
    "retries": lambda n: ngettext("%(n)s job waits for a retry.", "%(n)s jobs wait for a retry.", n),
    "dead": lambda n: ngettext("%(n)s job of %(queue)s is dead.", "%(n)s jobs of %(queue)s are dead.", n),
    "trimmed": lambda n: ngettext(
        "%(n)s dead job of %(queue)s was dropped: the setting DEAD keeps no more.",
        "%(n)s dead jobs of %(queue)s were dropped: the setting DEAD keeps no more.",
        n,
    ),
    "archive": lambda n: ngettext(
        "%(n)s finished job of %(queue)s has not been written to the archive.",
        "%(n)s finished jobs of %(queue)s have not been written to the archive.",
        n,
    ),
    "archive_full": lambda n: ngettext(
        "%(n)s finished job of %(queue)s waits for the archive, as many as ARCHIVE['BACKLOG'] allows: "
        "jobs that end now are not archived.",
        "%(n)s finished jobs of %(queue)s wait for the archive, as many as ARCHIVE['BACKLOG'] allows: "
        "jobs that end now are not archived.",
        n,
    ),
    "not_archived": lambda n: ngettext(
        "%(n)s finished job of %(queue)s is in no archive: too many waited for it.",
        "%(n)s finished jobs of %(queue)s are in no archive: too many waited for it.",
        n,
    ),
    "schedules_idle": lambda n: ngettext(
        "%(n)s schedule does not run, because no worker is running.",
        "%(n)s schedules do not run, because no worker is running.",
        n,
    ),
}
PLAIN: dict[str, Callable[[], str]] = {
    "latency": lambda: _("The oldest job of %(queue)s has waited for %(time)s."),
    "paused": lambda: _("%(queue)s is paused."),
    "type_paused": lambda: _("%(name)s is paused in %(queue)s."),
    "schedule_missed": lambda: _("Schedule %(name)s did not run at %(time)s."),
    "schedule_broken": lambda: _("Schedule %(name)s cannot run."),
    "read_only": lambda: _("The store is read-only (%(name)s): no job can be enqueued or run."),
    "not_saved": lambda: _("Redis could not write to its disk: it may refuse every change, and a restart loses jobs."),
    "not_persistent": lambda: _(
        "Redis keeps no append-only file: a restart loses the jobs since its last snapshot. Set `appendonly yes`."
    ),
    "evicts": lambda: _(
        "Redis may delete jobs to make room: its maxmemory-policy is %(name)s. Keys deleted so far: %(n)s. "
        "Set `maxmemory-policy noeviction`."
    ),
    "full": lambda: _("Redis is full: it refuses new jobs (%(n)s %% of maxmemory are in use)."),
    "nearly_full": lambda: _("Redis is nearly full: %(n)s %% of maxmemory are in use."),
}


#: What to do about the server, where the text of the alarm does not say it.
REMEDIES: dict[str, Callable[[], str]] = {
    "read_only": lambda: _("Let STORE name a primary server, or a file that every process may write."),
    "not_saved": lambda: _("Look into the log of Redis, and make room on its disk."),
    "full": lambda: _("Raise `maxmemory`, delete dead jobs, or keep less HISTORY."),
    "nearly_full": lambda: _("Raise `maxmemory`, delete dead jobs, or keep less HISTORY."),
}


def remedy_of(alarm: Alarm) -> str:
    """Return what to do, in the language that is active; "" if the text of the alarm says it."""
    return REMEDIES[alarm.kind]() if alarm.kind in REMEDIES else ""


def unchecked_text(each: Unchecked) -> str:
    """Return one sentence about something that could not be checked."""
    if each.what == "counts":
        text = ngettext(
            "%(n)s queue was not counted: there are many, and no worker publishes their numbers.",
            "%(n)s queues were not counted: there are many, and no worker publishes their numbers.",
            each.number,
        )
        return text % {"n": number(each.number)}
    if each.what == "schedules" and each.number:
        text = ngettext("%(n)s schedule was not checked.", "%(n)s schedules were not checked.", each.number)
        return text % {"n": number(each.number)}
    texts = {
        "names": _("Whether workers know the names of all jobs could not be checked: %(why)s"),
        "failures": _("The failures of the last hour could not be read: %(why)s"),
        "server": _("Memory, eviction and persistence of the store could not be checked: %(why)s"),
        "schedules": _("The schedules could not be checked: %(why)s"),
        "archive": _("The archive could not be checked: %(why)s"),
    }
    return texts[each.what] % {"why": cut(each.why, 300)}


def link_of(alarm: Alarm) -> tuple[str, tuple[str, ...], str]:
    """Return the page of the console on which this can be dealt with: the name of its address, its parts, the query."""
    here = {"queue": alarm.queue} if alarm.queue else {}
    match alarm.kind:
        case "no_workers" | "narrow":
            return "workers", (), ""
        case "dead" | "trimmed":
            return "jobs", ("dead",), f"?{urlencode({'group': 1} | here)}"
        case "failing" | "retries":
            return "jobs", ("retry",), "?group=1"
        case "overdue":
            return "jobs", ("scheduled",), f"?{urlencode(here)}"
        case "unknown":
            return "jobs", ("blocked",), f"?{urlencode(here | {'name': alarm.detail.partition(chr(9))[0]})}"
        case "schedule_missed" | "schedule_broken" | "schedules_idle":
            return "schedules", (), ""
        case "read_only" | "not_saved" | "not_persistent" | "evicts" | "full" | "nearly_full":
            return "store", (), ""
        case _ if alarm.queue:
            return "queue", (alarm.queue,), ""
        case _:
            return "queues", (), ""


def cut(text: str, length: int = LENGTH) -> str:
    """Return at most `length` printable characters."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return line if len(line) <= length else f"{line[: length - 1]}…"
