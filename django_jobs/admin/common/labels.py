"""The texts shown for states and verbs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext, ngettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from django_jobs.core.values import Added, State
from django_jobs.formatting import exact, number

Text = str | Promise

STATES: dict[State, Text] = {
    State.SCHEDULED: _("Scheduled"),
    State.QUEUED: _("Queued"),
    State.RUNNING: _("Running"),
    State.RETRY: _("Retry"),
    State.BLOCKED: _("Blocked"),
    State.SUCCEEDED: _("Succeeded"),
    State.DEAD: _("Dead"),
    State.CANCELLED: _("Cancelled"),
    State.EXPIRED: _("Expired"),
}

#: What became of a new job whose unique key a waiting job has.
EQUAL_WAITS: dict[Added | None, Text] = {
    Added.DUPLICATE: _("An equal job is already waiting. Nothing was enqueued."),
    Added.REPLACED: _("An equal job is already waiting. It has these arguments now."),
}

#: States of workflows, their kinds, and the states of steps.
WORKFLOW_STATES: dict[str, Text] = {
    "running": _("Running"),
    "stopped": _("Stopped"),
    "succeeded": _("Succeeded"),
    "cancelled": _("Cancelled"),
}
WORKFLOW_KINDS: dict[str, Text] = {"workflow": _("Workflow"), "batch": _("Batch")}
STEP_STATES: dict[str, Text] = {
    "waiting": _("Waiting"),
    "live": _("Started"),
    "succeeded": _("Succeeded"),
    "dead": _("Dead"),
    "cancelled": _("Cancelled"),
    "expired": _("Expired"),
    "deleted": _("Deleted"),
}

#: How often a job may start.
DELIVERY: dict[str, Text] = {
    "at_least_once": _("at least once"),
    "at_most_once": _("at most once"),
    "once_unless_failed": _("once, unless it fails"),
}

#: How urgent a finding is.
SEVERITIES: dict[str, Text] = {"error": _("error"), "warning": _("warning"), "notice": _("notice")}

#: The time that the store keeps the jobs of a state in the order of.
TIMES: dict[State, Text] = {
    State.SCHEDULED: _("Runs at"),
    State.RETRY: _("Next attempt"),
    State.SUCCEEDED: _("Finished at"),
    State.DEAD: _("Died at"),
    State.CANCELLED: _("Cancelled at"),
    State.EXPIRED: _("Expired at"),
}

#: One line under the heading of each list.
EXPLAINED: dict[State, Text] = {
    State.SCHEDULED: _("Jobs that are scheduled for a later time."),
    State.QUEUED: _("Jobs that run as soon as a worker is free."),
    State.RUNNING: _("Jobs that workers are running now."),
    State.RETRY: _("Jobs that failed and will be retried automatically."),
    State.BLOCKED: _("Jobs held back, for example by a concurrency limit or by a pause of their job type."),
    State.SUCCEEDED: _("Jobs that succeeded and are still in the history."),
    State.DEAD: _("Jobs that failed for good. They run again only if you retry them."),
    State.CANCELLED: _("Jobs that a user or their own code cancelled."),
    State.EXPIRED: _("Jobs that did not start before their expiry time."),
}

NOTHING: dict[State, Text] = {
    State.SCHEDULED: _("There are no scheduled jobs."),
    State.QUEUED: _("There are no queued jobs."),
    State.RUNNING: _("There are no running jobs."),
    State.RETRY: _("There are no jobs that wait for a retry."),
    State.BLOCKED: _("There are no blocked jobs."),
    State.SUCCEEDED: _("There are no succeeded jobs in the history."),
    State.DEAD: _("There are no dead jobs."),
    State.CANCELLED: _("There are no cancelled jobs."),
    State.EXPIRED: _("There are no expired jobs."),
}


def span_text(since: int, before: int) -> str:
    """Return a stretch of time (ms; 0 = no bound): "from … until …"."""
    from_ = gettext("from %(time)s") % {"time": exact(since)} if since else ""
    until = gettext("until %(time)s") % {"time": exact(before)} if before else ""
    return f"{from_} {until}".strip()


class VerbWords(NamedTuple):
    """The texts that offer a verb, ask for confirmation and report its result."""

    label: Text
    #: for one job and for several: `% number`.
    question: Promise
    explained: Promise
    destructive: bool = False


VERBS: dict[str, VerbWords] = {
    "revive": VerbWords(
        _("Run now"),
        ngettext_lazy("Run this job now?", "Run these jobs now?"),
        ngettext_lazy(
            "It is queued at once. If it had ended, it gets all its attempts again.",
            "They are queued at once. Jobs that had ended get all their attempts again.",
        ),
    ),
    "reschedule": VerbWords(
        _("Reschedule"),
        ngettext_lazy("When should this job run?", "When should these jobs run?"),
        ngettext_lazy(
            "It waits until this time. Then it runs as soon as a worker is free.",
            "They wait until this time. Then they run as soon as a worker is free.",
        ),
    ),
    "cancel": VerbWords(
        _("Cancel"),
        ngettext_lazy("Cancel this job?", "Cancel these jobs?"),
        ngettext_lazy(
            "If it waits, it is cancelled. If it runs, it is asked to stop; its code decides when.",
            "Waiting jobs are cancelled. Running jobs are asked to stop; their code decides when.",
        ),
    ),
    "kill": VerbWords(
        _("Kill"),
        ngettext_lazy("Kill this job?", "Kill these jobs?"),
        ngettext_lazy(
            "It becomes dead. If a process runs it, the process is ended within seconds, and the result is discarded.",
            "They become dead. The process that runs such a job is ended within seconds, and its result is discarded.",
        ),
        True,
    ),
    "delete": VerbWords(
        _("Delete"),
        ngettext_lazy("Delete this job?", "Delete these jobs?"),
        ngettext_lazy(
            "It is deleted permanently, with its arguments and its log.",
            "They are deleted permanently, with their arguments and their log.",
        ),
        True,
    ),
}


def verb_label(verb: str, state: State | None = None) -> Text:
    """Return the label of the button; for jobs that failed, "revive" has a label of its own."""
    if verb == "revive" and state in {State.DEAD, State.RETRY}:
        return _("Retry now")
    return VERBS[verb].label


#: The verbs that `report` can report.
REPORTED = frozenset({"revive", "reschedule", "cancel", "kill", "delete"})


#: Maximum number of jobs that a message names.
_NAMED = 10


def report(
    verb: str, moved: int, asked: int = 0, held: int = 0, taken: int = 0, holders: Mapping[str, str] | None = None
) -> str:
    """Return one sentence that reports the result.  `holders`: the jobs in `taken`, and who has their keys."""
    texts = {
        "revive": ngettext("%(n)s job was queued.", "%(n)s jobs were queued.", moved),
        "reschedule": ngettext("%(n)s job was rescheduled.", "%(n)s jobs were rescheduled.", moved),
        "cancel": ngettext("%(n)s job was cancelled.", "%(n)s jobs were cancelled.", moved),
        "kill": ngettext("%(n)s job was moved to dead.", "%(n)s jobs were moved to dead.", moved),
        "delete": ngettext("%(n)s job was deleted.", "%(n)s jobs were deleted.", moved),
    }
    said = texts[verb] % {"n": number(moved)}
    if asked:
        running = ngettext("%(n)s running job was asked to stop.", "%(n)s running jobs were asked to stop.", asked)
        said = f"{said} {running % {'n': number(asked)}}" if moved else running % {"n": number(asked)}
    if held:
        stays = ngettext(
            "%(n)s job is delivered at most once and may have been started: it was not started again.",
            "%(n)s jobs are delivered at most once and may have been started: they were not started again.",
            held,
        )
        said = f"{said} {stays % {'n': number(held)}}"
    if taken:
        template = gettext("%(id)s: its key is held by %(holder)s")
        known = [template % {"id": id, "holder": holder} for id, holder in (holders or {}).items()]
        shown = known[:_NAMED]
        if len(known) > _NAMED:
            shown.append(gettext("and %(n)s more") % {"n": number(len(known) - _NAMED)})
        stays = ngettext(
            "%(n)s job was not queued, because another job has its unique key.",
            "%(n)s jobs were not queued, because other jobs have their unique keys.",
            taken,
        )
        said = f"{said} {stays % {'n': number(taken)}}" + (f" ({', '.join(shown)})" if shown else "")
    return said


def unchanged(verb: str) -> str:
    """Return the answer to a second click, or to one on a page that is older than the first: nothing was done."""
    return {
        "pause": gettext("It was paused already."),
        "resume": gettext("It was not paused any more."),
        "withdraw": gettext("It counted again already."),
        "stop": gettext("The operation had ended, or was stopped already."),
    }[verb]


def outbox_report(verb: str, done: int) -> str:
    """Return one sentence about what was done to entries of the outbox."""
    texts = {
        "send": ngettext("%(n)s entry of the outbox will be sent.", "%(n)s entries of the outbox will be sent.", done),
        "delete": ngettext("%(n)s entry of the outbox was deleted.", "%(n)s entries of the outbox were deleted.", done),
    }
    return texts[verb] % {"n": number(done)}
