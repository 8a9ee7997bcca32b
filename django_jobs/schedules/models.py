"""Periodic jobs that people write in the admin."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_jobs.conf import get_settings
from django_jobs.exceptions import InvalidSchedule
from django_jobs.schedules.entry import MAX_JITTER, ScheduleEntry, check_entry
from django_jobs.schedules.interval import check_timing, timing


class Missed(models.TextChoices):
    """What happens to scheduled times that passed while no worker ran."""

    ONE = "one", _("run once")
    SKIP = "skip", _("skip")
    ALL = "all", _("run each (at most 100)")


class Overlap(models.TextChoices):
    """What happens when the job of the last run has not ended."""

    ALLOW = "allow", _("run at the same time")
    SKIP = "skip", _("skip")


def no_arguments() -> list[object]:
    return []


def no_keywords() -> dict[str, object]:
    return {}


class Schedule(models.Model):
    """One schedule: a job, and when it runs."""

    name = models.CharField(_("name"), max_length=100, unique=True)
    job = models.CharField(_("job"), max_length=200, help_text=_("The name of a registered job."))
    cron = models.CharField(
        _("cron expression"),
        max_length=200,
        blank=True,
        help_text=_("Minute, hour, day of month, month, day of week. Six fields have seconds first."),
    )
    every = models.CharField(
        _("interval"),
        max_length=40,
        blank=True,
        default="",
        db_default="",
        help_text=_("Instead of a cron expression: for example 90s, 15m, 2h, 1h30m or 1d."),
    )
    at = models.DateTimeField(
        _("single time"), null=True, blank=True, help_text=_("Instead of a cron expression: it runs once.")
    )
    args = models.JSONField(_("arguments"), default=no_arguments, blank=True, help_text=_("A JSON list."))
    kwargs = models.JSONField(_("keyword arguments"), default=no_keywords, blank=True, help_text=_("A JSON object."))
    timezone = models.CharField(
        _("time zone"),
        max_length=64,
        blank=True,
        help_text=_("For example Europe/Paris. Leave it empty for the time zone of the project."),
    )
    missed = models.CharField(_("missed runs"), max_length=4, choices=Missed.choices, default=Missed.ONE)
    overlap = models.CharField(
        _("if the last run has not ended"), max_length=5, choices=Overlap.choices, default=Overlap.ALLOW
    )
    jitter = models.PositiveIntegerField(
        _("jitter"),
        default=0,
        validators=[MaxValueValidator(MAX_JITTER)],
        help_text=_("Each run is delayed by up to this many seconds."),
    )
    queue = models.CharField(
        _("queue"),
        max_length=100,
        blank=True,
        default="",
        db_default="",
        help_text=_("Leave it empty for the queue of the job."),
    )
    priority = models.SmallIntegerField(
        _("priority"), null=True, blank=True, help_text=_("Leave it empty for the priority of the job.")
    )
    expires_in = models.PositiveIntegerField(
        _("expires in"),
        null=True,
        blank=True,
        help_text=_("Seconds after which a job that has not started is not run any more."),
    )
    enabled = models.BooleanField(_("enabled"), default=True)

    class Meta:
        ordering = ["name"]
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")

    def __str__(self) -> str:
        return self.name

    def entry(self) -> ScheduleEntry:
        """Return the row as an Entry, the form of every schedule."""
        at = timezone.make_aware(self.at) if self.at is not None and timezone.is_naive(self.at) else self.at
        return ScheduleEntry(
            id=f"db:{self.pk}",
            job=self.job,
            cron=timing(self.cron, self.every, at),
            args=self.args,
            kwargs=self.kwargs,
            timezone=self.timezone or get_settings().time_zone,
            missed=self.missed,
            overlap=self.overlap,
            jitter=self.jitter,
            queue=self.queue,
            priority=self.priority,
            expires_in=self.expires_in,
            enabled=self.enabled,
            source="database",
            label=self.name,
        )

    def clean(self) -> None:
        """Refuse a schedule that could never run."""
        if None in (self.args, self.kwargs, self.jitter):
            return  # the field itself has said what is wrong
        try:
            check_timing(self.cron, self.every, self.at)
            check_entry(self.entry())
        except InvalidSchedule as error:
            option = "every" if error.option == "cron" and self.every and not self.cron else error.option
            raise ValidationError({option: str(error)}) from error
