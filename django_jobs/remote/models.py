"""Job types that other programs run: created in the admin or over HTTP, known to every worker within seconds."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.remote.targets import ForbiddenAddress, parse_target

#: Allowed names of job types, queues and job ids that come from outside.
NAME_PATTERN = r"^[A-Za-z0-9_.:-]{1,128}\Z"


class Delivery(models.TextChoices):
    """How often a job may be started."""

    AT_LEAST_ONCE = "at_least_once", _("at least once")
    AT_MOST_ONCE = "at_most_once", _("at most once")


class RemoteJobType(models.Model):
    """A job type that is posted to a URL (push), or fetched by workers in another language (pull: no URL)."""

    name = models.CharField(_("name"), max_length=128, unique=True, validators=[RegexValidator(NAME_PATTERN)])
    queue = models.CharField(_("queue"), max_length=128, default="default", validators=[RegexValidator(NAME_PATTERN)])
    delivery_strategy = models.CharField(
        _("delivery"), max_length=16, choices=Delivery.choices, default=Delivery.AT_LEAST_ONCE
    )
    attempts = models.PositiveIntegerField(
        _("attempts"),
        default=10,
        validators=[MinValueValidator(1), MaxValueValidator(1000)],
        help_text=_("The total number; 1 means no retries."),
    )
    concurrency = models.PositiveIntegerField(
        _("concurrency"),
        default=0,
        validators=[MaxValueValidator(1_000_000)],
        help_text=_("The maximum number that run at the same time on all workers; 0 means no limit."),
    )
    timeout = models.PositiveIntegerField(
        _("timeout"),
        default=300,
        validators=[MinValueValidator(1), MaxValueValidator(86_400)],
        help_text=_("Seconds; an attempt that sends no report for this long has failed."),
    )
    url = models.CharField(
        _("URL"),
        max_length=2000,
        blank=True,
        help_text=_("The URL to which jobs are posted. Leave it empty if workers claim the jobs."),
    )
    per_minute = models.PositiveIntegerField(
        _("requests per minute"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_("More jobs are posted later; they wait without a thread. Empty means no limit."),
    )
    credentials = models.CharField(
        _("credentials"),
        max_length=100,
        blank=True,
        help_text=_("A name in DJANGO_JOBS['API']['CREDENTIALS']; secrets stay out of the database."),
    )

    class Meta:
        ordering = ["name"]
        verbose_name = _("remote job type")
        verbose_name_plural = _("remote job types")

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Refuse values that no worker could run."""
        settings = get_settings()
        if self.name in registry.names():
            raise ValidationError({"name": _("A job of this project already has this name.")})
        if self.queue not in settings.queues:
            raise ValidationError(
                {"queue": _("%(queue)s is not in DJANGO_JOBS['QUEUES'].") % {"queue": repr(self.queue)}}
            )
        api = settings.api or {}
        if self.credentials and self.credentials not in api.get("CREDENTIALS", {}):
            raise ValidationError({"credentials": _("There is no such name in DJANGO_JOBS['API']['CREDENTIALS'].")})
        if self.url:
            try:
                parse_target(self.url, api.get("REMOTE_HOSTS", ()))
            except ForbiddenAddress as error:
                raise ValidationError({"url": str(error)}) from error
