"""The rows of the outbox."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_jobs.outbox.entries import EntryKind

KINDS = [
    (EntryKind.JOB.value, _("job")),
    (EntryKind.WORKFLOW.value, _("workflow")),
    (EntryKind.CLOSE.value, _("end of a batch")),
]


class OutboxEntry(models.Model):
    """A job, a workflow or the end of a batch that was enqueued in a transaction and is not known to be in the store.

    Usually it is there for the milliseconds between the commit and the answer of the store."""

    kind = models.CharField(_("kind"), max_length=8, choices=KINDS)
    #: the id of the job, the workflow or the batch.  Not unique: a caller's id may be enqueued twice.
    key = models.CharField(_("id"), max_length=200)
    #: of this row alone: who wrote it removes it by this.
    token = models.CharField(max_length=32, editable=False)
    name = models.CharField(_("name"), max_length=255, blank=True)
    queue = models.CharField(_("queue"), max_length=128, blank=True)
    #: the batch that the job joins, or that ends.
    batch = models.CharField(_("batch"), max_length=64, blank=True)
    created = models.DateTimeField(_("created"))
    #: from when on its age counts; later than `created` if somebody has decided to send it again.
    fresh_at = models.DateTimeField(_("to be sent since"))
    #: why it was not sent at the last try.
    reason = models.TextField(_("reason"), blank=True)
    #: nobody sends it until somebody decides.
    is_held = models.BooleanField(_("held"), default=False)
    #: last: SQLite reads all bytes that are before a column.
    data = models.BinaryField(_("data"))

    class Meta:
        verbose_name = _("outbox entry")
        verbose_name_plural = _("outbox entries")
        ordering = ["id"]
        # Each index is written for each job.  Workers read in the order of the primary key; held entries are few.
        indexes = [
            models.Index(fields=["token"], name="django_jobs_outbox_token"),
            models.Index(fields=["batch"], name="django_jobs_outbox_batch"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.key}"
