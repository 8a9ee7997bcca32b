"""Sentences about entries of the audit log, in the language of the reader.

An entry may be older or newer than this code: what is missing or unknown is left out, and nothing is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs import browse
from django_jobs.admin.common import labels
from django_jobs.admin.common.labels import Text
from django_jobs.core.values import State
from django_jobs.formatting import exact
from django_jobs.models.audit import Act, AuditEntry, ObjectKind

#: What was done, as it is written, or as it was read.
Entry = Act | AuditEntry
#: Jobs that are named in a row.
SHOWN = 20

#: verb → the label in the filter, for verbs that no button has.
_LABELS: Mapping[str, Text] = {
    "edit": gettext_lazy("Edit arguments"),
    "replay": gettext_lazy("Replay"),
    "enqueue": gettext_lazy("Enqueue"),
    "pause": gettext_lazy("Pause"),
    "resume": gettext_lazy("Resume"),
    "run": gettext_lazy("Run now"),
    "retry": gettext_lazy("Retry"),
    "stop": gettext_lazy("Stop"),
    "quiet": gettext_lazy("Quiet"),
    "create": gettext_lazy("Create"),
    "change": gettext_lazy("Change"),
    "revoke": gettext_lazy("Revoke"),
    "rotate": gettext_lazy("New secret"),
    "send": gettext_lazy("Send again"),
    "acknowledge": gettext_lazy("Acknowledge"),
    "withdraw": gettext_lazy("Withdraw"),
    "resolve": gettext_lazy("Resolve"),
    "ignore": gettext_lazy("Ignore"),
    "reopen": gettext_lazy("Reopen"),
    "note": gettext_lazy("Note"),
}


def verb_label(verb: str) -> str:
    if verb in _LABELS:
        return str(_LABELS[verb])
    return str(labels.verb_label(verb)) if verb in labels.VERBS else verb


def kind_label(kind: str) -> str:
    return str(dict(ObjectKind.choices).get(kind, kind))


def ids_of(entry: Entry) -> list[tuple[str, str]]:
    """Return queue and id of the jobs that an entry names: those it moved, or the one that it is about."""
    ids = _details(entry).get("ids") or [_details(entry).get("job")]
    found = [each for each in ids if isinstance(each, list) and len(each) == 2] if isinstance(ids, list) else []
    return [(str(queue), str(id)) for queue, id in found if queue and id]


def number_of(entry: Entry) -> int:
    """Return how many jobs were moved or asked to stop."""
    return max(_whole(entry, "moved") + _whole(entry, "asked"), len(ids_of(entry)))


def sentence(entry: Entry, *, arguments: bool = True) -> str:
    """Return what was done, in one or two sentences.  `arguments`: the reader may see them."""
    write = _SENTENCES.get((entry.kind, entry.verb))
    if write is not None:
        return write(entry)
    if entry.verb in labels.REPORTED and entry.kind == ObjectKind.JOB:
        return _report(entry)
    if entry.verb in labels.REPORTED and entry.kind == ObjectKind.BULK:
        return _bulk(entry, arguments)
    return f"{kind_label(entry.kind)} {_name(entry)}: {verb_label(entry.verb)}"


def facts(entry: Entry, *, arguments: bool) -> list[str]:
    """Return more about it: reason, times, and what was before and after.  `arguments`: the reader may see them."""
    details, found = _details(entry), []
    if reason := details.get("reason"):
        found.append(_("Reason: %(reason)s") % {"reason": reason})
    if until := _whole(entry, "until"):
        found.append(_("until %(time)s") % {"time": exact(until)})
    if run_at := _whole(entry, "run_at"):
        found.append(_("at %(time)s") % {"time": exact(run_at)})
    if details.get("start_again"):
        found.append(_("Confirmed: jobs that are delivered at most once start again."))
    found += _ended_pause(details.get("paused"))
    for key, label in (("before", _("Before: %(value)s")), ("after", _("After: %(value)s"))):
        if key in details:
            found.append(label % {"value": details[key] if arguments else "•••"})
    return found + _changes(details.get("changes"))


def _report(entry: Entry) -> str:
    return labels.report(
        entry.verb, _whole(entry, "moved"), _whole(entry, "asked"), _whole(entry, "held"), _whole(entry, "taken")
    )


def _bulk(entry: Entry, arguments: bool) -> str:
    details = _details(entry)
    match, query = details.get("filter"), {"terms": str(details.get("query") or "")}
    shown = browse.readable_by(match, arguments=arguments) if isinstance(match, dict) else {}
    chosen = [_filter(str(key), value) for key, value in shown.items()]
    state = details.get("state")
    known = State(state) if state in set(State) else None
    began = _("%(verb)s: jobs in state “%(state)s”, %(filter)s (operation %(id)s).") % {
        "verb": labels.verb_label(entry.verb, known),
        "state": labels.STATES[known] if known else state,
        "filter": browse.readable_by(query, arguments=arguments)["terms"] or ", ".join(chosen) or _("no filter"),
        "id": entry.subject,
    }
    if not details.get("ended"):
        return f"{began} {_('It goes on in the background; a second entry will say what it did.')}"
    stopped = _("It was stopped.") if details.get("stopped") else ""
    return f"{began} {_report(entry)} {stopped}".strip()


def _filter(key: str, value: Any) -> str:
    if key in ("since", "before") and isinstance(value, int):
        return labels.span_text(**{"since": 0, "before": 0, key: value})
    return str(value) if key == "terms" else f"{key}={value}"


def _edited(entry: Entry) -> str:
    if _whole(entry, "moved"):
        return _("The job was queued with new arguments.")
    return _("The job has new arguments and is still waiting.")


def _where(entry: Entry) -> str:
    name = _details(entry).get("job_type")
    return _("%(name)s in %(queue)s") % {"name": name, "queue": entry.subject} if name else entry.subject


def _job(entry: Entry) -> str:
    job = _details(entry).get("job")
    return str(job[1]) if isinstance(job, list) and len(job) == 2 else ""


def _name(entry: Entry) -> str:
    return str(_details(entry).get("name") or entry.subject)


_SENTENCES: Mapping[tuple[str, str], Callable[[Entry], str]] = {
    (ObjectKind.JOB, "edit"): _edited,
    (ObjectKind.JOB, "replay"): lambda entry: _("The job was enqueued again as job %(id)s.") % {"id": _job(entry)},
    (ObjectKind.JOB, "enqueue"): lambda entry: (
        _("%(name)s was enqueued, like job %(id)s.") % {"name": _name(entry), "id": _job(entry)}
    ),
    (ObjectKind.BULK, "stop"): lambda entry: _("The operation stops after the current batch."),
    (ObjectKind.QUEUE, "pause"): lambda entry: _("Paused: %(what)s") % {"what": _where(entry)},
    (ObjectKind.QUEUE, "resume"): lambda entry: _("Resumed: %(what)s") % {"what": _where(entry)},
    (ObjectKind.WORKER, "stop"): lambda entry: (
        _("Worker %(name)s was told to stop. It finishes its running jobs, then ends.") % {"name": entry.subject}
    ),
    (ObjectKind.WORKER, "quiet"): lambda entry: (
        _("Worker %(name)s was told to be quiet. It finishes its running jobs and takes no others.")
        % {"name": entry.subject}
    ),
    (ObjectKind.SCHEDULE, "run"): lambda entry: (
        (
            _("Schedule %(name)s gave its arguments to the equal job %(id)s, which was waiting.")
            if _details(entry).get("replaced")
            else _("Schedule %(name)s was enqueued as job %(id)s.")
        )
        % {"name": _name(entry), "id": _job(entry)}
    ),
    (ObjectKind.SCHEDULE, "pause"): lambda entry: _("Schedule %(what)s is paused.") % {"what": _name(entry)},
    (ObjectKind.SCHEDULE, "resume"): lambda entry: _("Schedule %(what)s is resumed.") % {"what": _name(entry)},
    (ObjectKind.WORKFLOW, "cancel"): lambda entry: _("The workflow was cancelled. Steps that run were asked to stop."),
    (ObjectKind.WORKFLOW, "retry"): lambda entry: labels.report(
        "revive", _whole(entry, "moved"), held=_whole(entry, "held"), taken=_whole(entry, "taken")
    ),
    (ObjectKind.OUTBOX, "send"): lambda entry: labels.outbox_report("send", _whole(entry, "moved")),
    (ObjectKind.OUTBOX, "delete"): lambda entry: labels.outbox_report("delete", _whole(entry, "moved")),
}


def _ended_pause(pause: Any) -> list[str]:
    if not isinstance(pause, dict):
        return []
    found = []
    if by := pause.get("by"):
        found.append(_("It was paused by %(user)s.") % {"user": by})
    if isinstance(since := pause.get("since"), int) and since:
        found.append(_("It was paused since %(time)s.") % {"time": exact(since)})
    if reason := pause.get("reason"):
        found.append(_("Reason of the pause: %(reason)s") % {"reason": reason})
    return found


def _changes(changes: Any) -> list[str]:
    if not isinstance(changes, dict):
        return []
    found = []
    for name, values in changes.items():
        if isinstance(values, list) and len(values) == 2:
            found.append(f"{name}: {_shown(values[0])} → {_shown(values[1])}")
        else:
            found.append(_("%(field)s was changed.") % {"field": name})
    return found


def _shown(value: Any) -> str:
    return "—" if value in (None, "", [], {}) else str(value)


def _details(entry: Entry) -> dict[str, Any]:
    return entry.details if isinstance(entry.details, dict) else {}


def _whole(entry: Entry, key: str) -> int:
    value = _details(entry).get(key)
    return int(value) if isinstance(value, int | float) else 0
