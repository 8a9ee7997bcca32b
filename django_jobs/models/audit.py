"""The audit log: who did what to jobs, queues, workers, schedules, workflows, tokens and job types.

An entry is data, not a sentence: the admin writes the sentence in the language of the person who reads it.
"""

from __future__ import annotations

import getpass
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseFault
from django.db import models, router
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_jobs.core.outcome import clean
from django_jobs.core.queue_stats import Pause
from django_jobs.core.values import Added, JobInfo
from django_jobs.runtime.savepoint import savepoint
from django_jobs.serialization.masking import shown_call
from django_jobs.serialization.record import job_in

if TYPE_CHECKING:  # models are loaded in every process; all that operators use is not
    from django_jobs.enqueueing.handle import JobHandle
    from django_jobs.operations.bulk import Operation

logger = logging.getLogger("django_jobs.audit")
#: Ids of jobs in one entry.  The number of jobs is always exact.
MOST_IDS = 200
#: Characters of one text in an entry.
LONGEST = 2_000
_LOST = "The audit log of django_jobs cannot be written: %s. Run `manage.py migrate` if its table is missing."


class Source(models.TextChoices):
    """By which way somebody acted."""

    ADMIN = "admin", _("admin")
    HTTP = "http", _("HTTP API")
    COMMAND = "command", _("command line")


class ObjectKind(models.TextChoices):
    """What somebody acted on."""

    JOB = "job", _("job")
    BULK = "bulk", _("bulk operation")
    QUEUE = "queue", _("queue")
    WORKER = "worker", _("worker")
    SCHEDULE = "schedule", _("schedule")
    WORKFLOW = "workflow", _("workflow")
    TOKEN = "token", _("API token")
    JOB_TYPE = "job_type", _("remote job type")
    OUTBOX = "outbox", _("outbox")
    FINDING = "finding", _("finding")
    ERROR = "error", _("error")


@dataclass(frozen=True, slots=True)
class Act:
    """What was done.  `details` are JSON values; the keys that the History page knows:

    `ids` (pairs of queue and id), `moved`, `asked`, `held` (numbers of jobs), `reason`, `until` and `run_at` (ms),
    `job_type`, `state`, `filter` and (over HTTP) `query` of a bulk operation, `ended` (ms; 0 = it goes on), `stopped`,
    `before` and `after` (arguments of a job, masked), `changes` (field → old and new value), `job` (queue and id: of
    the job that a replay or a schedule made, or of the one that a new job is like), `replaced` (that job was waiting,
    and has the schedule's arguments now), `paused` (the pause that ended)."""

    verb: str
    kind: ObjectKind
    #: the queue, the worker, the id of a schedule, workflow or operation, the name of a token or job type; of the
    #: outbox, the queues; of a finding, its kind and subject; of an error, its class and place.
    subject: str
    details: Mapping[str, Any] = field(default_factory=dict)


class AuditEntry(models.Model):
    """One act.  Nothing refers to the user's row, so an entry outlives its user."""

    at = models.DateTimeField(_("time"), default=timezone.now, db_index=True, editable=False)
    actor = models.CharField(_("who"), max_length=254, db_index=True, editable=False)
    source = models.CharField(_("by"), max_length=20, choices=Source.choices, editable=False)
    verb = models.CharField(_("action"), max_length=40, editable=False)
    kind = models.CharField(_("kind"), max_length=20, choices=ObjectKind.choices, editable=False)
    subject = models.CharField(_("on"), max_length=300, editable=False)
    details = models.JSONField(_("details"), default=dict, editable=False)

    class Meta:
        ordering: ClassVar = ["-at", "-pk"]
        default_permissions: ClassVar = ()
        # In this order: if `kind` were first, SQLite would take it for the acts on one job, and read all of a kind.
        indexes: ClassVar = [models.Index(fields=["verb", "kind"], name="django_jobs_audit_verb")]
        verbose_name = _("entry of the audit log")
        verbose_name_plural = _("audit log")

    def __str__(self) -> str:
        return f"{self.actor}: {self.verb} {self.kind} {self.subject}"


def record(actor: str, source: Source, act: Act) -> None:
    """Write an entry.  The act is done: if the database cannot be written, that is logged and not raised.

    `actor`: the name of the user, the API token or the user of a shell."""
    using = router.db_for_write(AuditEntry)
    try:
        with savepoint(using):
            write(actor, source, act)
    except (DatabaseFault, ImproperlyConfigured) as error:
        logger.warning(_LOST, error, extra={"audit": f"{actor}: {act.verb} {act.kind} {act.subject}"})


def write(actor: str, source: Source, act: Act) -> None:
    """Write an entry.  Raises DatabaseError."""
    AuditEntry(
        actor=clean(actor, 254),
        source=source,
        verb=act.verb[:40],
        kind=act.kind,
        subject=clean(act.subject, 300),
        details={key: _bounded(value) for key, value in act.details.items() if value not in (None, "", [], {})},
    ).save(force_insert=True)


def shell_user() -> str:
    """Return the name of the user of this shell."""
    try:
        return f"{getpass.getuser()} (shell)"
    except (OSError, KeyError, ImportError):  # a container's user may have no name
        return "shell"


def listed(ids: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return the first ids, as an entry has them."""
    return [[queue, id] for queue, id in ids][:MOST_IDS]


def bulk_details(operation: Operation) -> dict[str, Any]:
    """Return a bulk operation, as an entry has it.  One that goes on gets a second entry when it has ended."""
    match = {key: value for key, value in asdict(operation.match).items() if value and key != "arguments"}
    facts = {"state": operation.state.value, "filter": match, "query": operation.query, "ended": operation.finished}
    if operation.verb == "kill":
        facts["reason"] = operation.reason
    if not operation.finished:
        return facts
    numbers = {"moved": operation.moved, "asked": operation.asked, "held": operation.held, "taken": operation.taken}
    return facts | numbers | {"ids": listed(operation.named), "stopped": operation.stopped}


def write_end(operation: Operation) -> None:
    """Write the end of a bulk operation that went on in the background, by the way of its beginning.  Raises
    DatabaseError: then it is tried again later."""
    begun = AuditEntry.objects.filter(verb=operation.verb[:40], kind=ObjectKind.BULK, subject=operation.id)
    way = begun.values_list("source", flat=True).first() or (Source.HTTP if operation.over_http else Source.ADMIN)
    write(operation.user, Source(way), Act(operation.verb, ObjectKind.BULK, operation.id, bulk_details(operation)))


def run_details(handle: JobHandle) -> dict[str, Any]:
    """Return the job of a run of a schedule, as an entry has it: a new one, or one that was waiting (`replaced`)."""
    return {"job": [handle.queue, handle.id], "replaced": handle.added is Added.REPLACED}


def outbox_act(verb: str, entries: Sequence[Any]) -> Act:
    """Return what was done to these rows of the outbox."""
    queues = dict.fromkeys(row.queue for row in entries if row.queue)
    ids = listed((row.queue, row.key) for row in entries if row.queue)
    return Act(verb, ObjectKind.OUTBOX, ", ".join(queues), {"ids": ids, "moved": len(entries)})


def edit_details(info: JobInfo, call: Sequence[Any]) -> dict[str, str]:
    """Return the arguments of a job before and after an edit, both masked, as JSON.  `call`: the new ones."""
    if (job := job_in(info)) is None:
        return {}
    new = job._replace(args=json.dumps(call).encode())
    before, after = (json.dumps(shown_call(each), ensure_ascii=False) for each in (job, new))
    return {"before": before, "after": after}


def pause_details(pause: Pause | None) -> dict[str, Any]:
    """Return a pause that ended, as an entry has it."""
    return {} if pause is None else pause._asdict()


def _bounded(value: Any) -> Any:
    """Return a value as JSON, its texts without control characters and not longer than LONGEST."""
    if isinstance(value, str):
        return clean(value, LONGEST)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {clean(str(key), 200): _bounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_bounded(each) for each in value]
    return clean(str(value), LONGEST)
