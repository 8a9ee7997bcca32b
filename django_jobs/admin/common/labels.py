"""The texts shown for states and verbs."""

from __future__ import annotations

from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from django_jobs.core.values import State

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

#: One line under the heading of each list.
EXPLAINED: dict[State, Text] = {
    State.SCHEDULED: _("Jobs that wait for their time."),
    State.QUEUED: _("Jobs that run as soon as a worker is free."),
    State.RUNNING: _("Jobs that a worker holds right now."),
    State.RETRY: _("Jobs that failed and will be tried again by themselves."),
    State.BLOCKED: _("Jobs held back by a concurrency limit or by a pause of their job type."),
    State.SUCCEEDED: _("Jobs that ended well, as far back as the history is kept."),
    State.DEAD: _("Jobs that nobody will try again unless you do."),
    State.CANCELLED: _("Jobs that a person or the job itself called off."),
    State.EXPIRED: _("Jobs that had not started when their time was over."),
}

NOTHING: dict[State, Text] = {
    State.SCHEDULED: _("No job waits for its time."),
    State.QUEUED: _("No job waits for a worker."),
    State.RUNNING: _("Nothing runs at this moment."),
    State.RETRY: _("No job waits to be tried again."),
    State.BLOCKED: _("No job is held back."),
    State.SUCCEEDED: _("No job has succeeded within the history that is kept."),
    State.DEAD: _("No dead jobs. All is well."),
    State.CANCELLED: _("No job was cancelled."),
    State.EXPIRED: _("No job has expired."),
}


class VerbWords(NamedTuple):
    """The texts that offer a verb, ask for confirmation and report its result."""

    label: Text
    question: Text
    explained: Text
    destructive: bool = False


VERBS: dict[str, VerbWords] = {
    "retry": VerbWords(
        _("Run now"),
        _("Run these jobs now?"),
        _("They are queued at once. Those that had ended have all their attempts again."),
    ),
    "edit": VerbWords(_("Edit and run"), _("Run with other arguments?"), ""),
    "reschedule": VerbWords(
        _("Reschedule"), _("When shall these jobs run?"), _("They wait until then and run as soon as a worker is free.")
    ),
    "cancel": VerbWords(
        _("Cancel"),
        _("Cancel these jobs?"),
        _("Waiting jobs are cancelled; running ones are asked to stop and decide when."),
    ),
    "kill": VerbWords(
        _("Kill"),
        _("Kill these jobs?"),
        _(
            "They become dead. The process that runs one is ended within seconds, "
            "and what it does until then does not count."
        ),
        True,
    ),
    "delete": VerbWords(
        _("Delete"), _("Delete these jobs?"), _("They are gone for good, with their arguments and their log."), True
    ),
}


def verb_label(verb: str, state: State | None = None) -> Text:
    """Return the label of the button; for jobs that failed, "retry" has a label of its own."""
    if verb == "retry" and state in {State.DEAD, State.RETRY}:
        return _("Retry now")
    return VERBS[verb].label


def report(verb: str, moved: int, asked: int = 0) -> str:
    """Return one sentence that reports the result."""
    texts = {
        "retry": ngettext("%(n)d job was queued.", "%(n)d jobs were queued.", moved),
        "reschedule": ngettext("%(n)d job was rescheduled.", "%(n)d jobs were rescheduled.", moved),
        "cancel": ngettext("%(n)d job was cancelled.", "%(n)d jobs were cancelled.", moved),
        "kill": ngettext("%(n)d job was moved to dead.", "%(n)d jobs were moved to dead.", moved),
        "delete": ngettext("%(n)d job was deleted.", "%(n)d jobs were deleted.", moved),
    }
    said = texts[verb] % {"n": moved}
    if asked:
        running = ngettext("%(n)d running job was asked to stop.", "%(n)d running jobs were asked to stop.", asked)
        said = f"{said} {running % {'n': asked}}" if moved else running % {"n": asked}
    return said
