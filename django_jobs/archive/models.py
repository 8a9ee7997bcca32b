"""The history of finished jobs, for as long as ARCHIVE["DAYS"] says."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_jobs.core.options.checks import LONGEST_TAG


class ArchivedJob(models.Model):
    """One finished job, written by a worker's archiver and never changed by hand."""

    job_id = models.CharField(_("id"), max_length=255)
    queue = models.CharField(_("queue"), max_length=128)
    name = models.CharField(_("name"), max_length=255)
    status = models.CharField(_("state"), max_length=16)
    record = models.BinaryField(_("record"), help_text=_("The stored job, with its arguments."))
    result = models.TextField(_("result"), blank=True, help_text=_("JSON; empty if no result was kept."))
    failures = models.PositiveIntegerField(_("failures"), default=0)
    crashes = models.PositiveIntegerField(_("lost workers"), default=0)
    log = models.TextField(_("attempts"), blank=True, help_text=_("JSON: how each attempt that did not succeed ended."))
    error_type = models.CharField(_("error class"), max_length=255, blank=True)
    error = models.TextField(_("error"), blank=True)
    worker = models.CharField(_("worker"), max_length=255, blank=True)
    run_ms = models.BigIntegerField(_("run time (ms)"), default=-1)
    enqueued_at = models.DateTimeField(_("enqueued"), null=True)
    ended_at = models.DateTimeField(_("ended"))

    class Meta:
        verbose_name = _("archived job")
        verbose_name_plural = _("archived jobs")
        ordering = ["-ended_at", "-id"]
        # The id comes first, so that the index also finds a job in any queue: one index less to write for each row.
        constraints = [models.UniqueConstraint(fields=["job_id", "queue"], name="django_jobs_archive_once")]
        indexes = [
            models.Index(fields=["-ended_at", "-id"], name="django_jobs_archive_end"),
            models.Index(fields=["name", "-ended_at", "-id"], name="django_jobs_archive_name"),
            models.Index(fields=["status", "-ended_at", "-id"], name="django_jobs_archive_state"),
            models.Index(fields=["queue", "-ended_at", "-id"], name="django_jobs_archive_queue"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.job_id}"


class ArchivedTag(models.Model):
    """One tag of an archived job, written with it: finds the jobs of a tag, newest first."""

    # Without a constraint: it would look up the job for each tag, and older versions could not delete jobs.
    job = models.ForeignKey(ArchivedJob, models.CASCADE, related_name="tags", db_index=False, db_constraint=False)
    tag = models.CharField(_("tag"), max_length=LONGEST_TAG)
    #: as of the job, for the index.  If the row of the job was replaced by one without tags, they differ.
    ended_at = models.DateTimeField(_("ended"))

    class Meta:
        verbose_name = _("tag of an archived job")
        verbose_name_plural = _("tags of archived jobs")
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["job", "tag"], name="django_jobs_archive_tags")]
        indexes = [models.Index(fields=["tag", "-ended_at", "-job"], name="django_jobs_archive_tag")]

    def __str__(self) -> str:
        return self.tag
