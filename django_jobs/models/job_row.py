"""A row of the project for each job of some kind, which shows how the job stands after the job has left the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.apps import apps
from django.db import models, router, transaction
from django.utils.translation import gettext_lazy as _

from django_jobs.archive.values import as_stored
from django_jobs.conf import get_settings
from django_jobs.core.values import FINISHED, State
from django_jobs.enqueueing.decorator import job
from django_jobs.enqueueing.handle import DEFERRED, DUPLICATE, JobHandle, find
from django_jobs.enqueueing.methods import Calls
from django_jobs.enqueueing.request import new_id, now_ms
from django_jobs.outbox.entries import Entry, dropping
from django_jobs.serialization.record import decode
from django_jobs.workflows.end_calls import told

#: The name of the job that writes into the rows how jobs ended.
NOTE_END = "django_jobs.note_end"


class JobRow(models.Model):
    """The abstract base of a model with a row for each job.

    `row.enqueue(job, …)` enqueues a job for the row.  `state` is "queued" until the job has ended; then `state`,
    `error`, `started_at` and `ended_at` are as `on_end` tells them.  If the job was not added, because an equal unique
    job waits or it was cancelled before the commit or in the outbox, `state` is "duplicate" or "cancelled"."""

    job_id = models.CharField(_("job"), max_length=128, default="", blank=True, db_index=True, editable=False)
    state = models.CharField(_("state"), max_length=16, default="", blank=True, editable=False)
    error = models.TextField(_("error"), default="", blank=True, editable=False)
    started_at = models.DateTimeField(_("started"), null=True, blank=True, editable=False)
    ended_at = models.DateTimeField(_("ended"), null=True, blank=True, editable=False)

    class Meta:
        abstract = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Only a project that has such a model has this job.
        job(name=NOTE_END, max_attempts=25)(note_end)
        if note_not_added not in dropping:
            dropping.append(note_not_added)

    def enqueue(self, task: Calls[Any, Any], /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        """Save the row, and enqueue the job for it, when the transaction commits.  `task` may be `job.using(…)`.

        A job with an `on_end` of its own calls `django_jobs.models.job_row.note_end` there.  Raises as `task.enqueue`
        does: after an error in the call, the row is as it was; after a StoreError at the commit, it is saved."""
        database = router.db_for_write(type(self), instance=self)
        before = {field.name: getattr(self, field.name) for field in JobRow._meta.local_fields}
        with transaction.atomic(using=database):
            try:
                return self._add(task, args, kwargs, database)
            except Exception:
                vars(self).update(before)
                raise

    def _add(self, task: Calls[Any, Any], args: Any, kwargs: Any, database: str) -> JobHandle[Any]:
        self.job_id, self.state, self.error = new_id(now_ms()), "queued", ""
        self.started_at = self.ended_at = None
        self.save(using=database)
        own = task._overrides.get("changed", {}).get("on_end", task._definition.on_end)
        options: dict[str, Any] = {"job_id": self.job_id, "on_end": own or NOTE_END}
        if database != router.db_for_write(type(self)):  # as a worker would ask, who has no instance
            options["meta"] = {**task._overrides.get("meta", {}), _at(type(self)): database}
        handle = task.using(**options).enqueue(*args, **kwargs)
        waits = handle.state == DEFERRED and database == get_settings().database
        is_early = not waits and handle.state not in FINISHED
        transaction.on_commit(partial(self._after_commit, self.job_id, handle, database, is_early), using=database)
        return handle

    def _after_commit(self, id: str, handle: JobHandle[Any], database: str, is_early: bool) -> None:
        """There may be no job after all, and no end that could be told.  One that was sent before (`is_early`) may have
        ended while nobody saw the row."""
        if is_early and (info := find(id)) is not None and info.state in FINISHED:
            note_end(told(info.state.value, decode(id, info.queue, info.record), info))
        elif handle.state in (DUPLICATE, State.CANCELLED) and self.job_id == id:
            self.state = str(handle.state)
            _note_not_added(type(self), database, id, self.state)


def note_end(end: dict[str, Any]) -> None:
    """Write the end of a job into its row, if it has one.  A later end of the same job stays."""
    began: datetime | None = end["started_at"]
    at = as_stored(end["ended_at"])
    for model, database in _places(end.get("meta", {})):
        rows = model._base_manager.using(database).filter(job_id=end["id"])
        rows.filter(models.Q(ended_at=None) | models.Q(ended_at__lte=at)).update(
            state=end["state"],
            error=end["error"] or "",
            started_at=None if began is None else as_stored(began),
            ended_at=at,
        )


def note_not_added(entries: Sequence[Entry], state: str) -> None:
    """Write into their rows that these jobs left the outbox unsent: a worker found an equal job, or somebody deleted or
    cancelled them.  Raises DatabaseError; a transaction that is open goes on."""
    for entry in entries:
        assert entry.new is not None
        for model, database in _places(decode(entry.key, entry.queue, entry.new.record).meta or {}):
            with transaction.atomic(using=database):
                _note_not_added(model, database, entry.key, str(state))


def _note_not_added(model: type[JobRow], database: str, id: str, state: str) -> None:
    model._base_manager.using(database).filter(job_id=id, ended_at=None).update(state=state)


def _places(meta: Mapping[str, Any]) -> Iterator[tuple[type[JobRow], str]]:
    """Yield each model of such rows, and the database in which a job with this `meta` has its row."""
    for model in apps.get_models():
        if issubclass(model, JobRow):
            yield model, meta.get(_at(model)) or router.db_for_write(model)


def _at(model: type[models.Model]) -> str:
    """Return the key, in the `meta` of a job, of the database in which its row of this model is."""
    return f"django_jobs.row:{model._meta.label}"
