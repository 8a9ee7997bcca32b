"""API tokens.  Only their SHA-256 is stored, so a copy of the database gives no access."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_jobs.core import registry

#: Prefix of every secret, so that scanners for leaked secrets can find them.
PREFIX = "djt_"


class Scope(models.TextChoices):
    """What a token may do."""

    ENQUEUE = "enqueue", _("enqueue: add jobs and see their states, without arguments and results")
    READ = "read", _("read: see jobs, queues, history and numbers")
    METRICS = "metrics", _("metrics: only what Prometheus reads")
    MANAGE = "manage", _("manage: cancel and replay jobs, pause queues, create remote job types")
    TARGETS = "targets", _("targets: set the URLs to which jobs are posted (with manage)")
    WORK = "work", _("work: claim jobs, report how they ended")


def digest_of(secret: str) -> str:
    """Return the hex SHA-256 that is stored.  Secrets are 256 random bits: no salt or slow hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def check_scopes(value: object) -> None:
    """Raise ValidationError for anything but a list of known scopes."""
    if not isinstance(value, list) or not value or any(scope not in Scope.values for scope in value):
        raise ValidationError(_("Choose at least one of: %(names)s."), params={"names": ", ".join(Scope.values)})


def check_names(value: object) -> None:
    """Raise ValidationError for anything but a list of job names."""
    if not isinstance(value, list) or any(not isinstance(name, str) or not name for name in value):
        raise ValidationError(_('Write a JSON list of job names, such as ["shop.jobs.receipt"], or [] for all.'))


class Tokens(models.Manager["ApiToken"]):
    """Makes tokens and finds them by their secret."""

    def issue(
        self,
        name: str,
        scopes: Iterable[str],
        jobs: Iterable[str] = (),
        expires_at: datetime | None = None,
        per_minute: int | None = None,
    ) -> tuple[ApiToken, str]:
        """Store a new token.  Returns it and its secret, which cannot be shown again.  Raises ValidationError."""
        secret = PREFIX + secrets.token_urlsafe(32)
        token = self.model(
            name=name,
            scopes=list(scopes),
            jobs=list(jobs),
            expires_at=expires_at,
            per_minute=per_minute,
            digest=digest_of(secret),
        )
        token.full_clean()
        token.save(force_insert=True)
        return token, secret

    def with_secret(self, secret: str) -> ApiToken | None:
        """Return the token that has this secret and is valid, or None.

        The look-up is by digest, so its duration reveals nothing of the secret; the comparison is constant-time, too.
        """
        digest, now = digest_of(secret), timezone.now()
        # Every request runs this query; building it with the ORM takes several times as long as the query.
        query = f"SELECT * FROM {self.model._meta.db_table} WHERE (digest = %s OR old_digest = %s)"
        token = next(iter(self.raw(f"{query} AND revoked_at IS NULL", [digest, digest])), None)
        if token is None or token.has_expired():
            return None
        is_old = token.old_until is not None and now < token.old_until and hmac.compare_digest(token.old_digest, digest)
        return token if is_old or hmac.compare_digest(token.digest, digest) else None


class ApiToken(models.Model):
    """Access for one client of the HTTP API."""

    name = models.CharField(_("name"), max_length=100, help_text=_("Who will use it."))
    digest = models.CharField(_("SHA-256"), max_length=64, unique=True, editable=False)
    scopes = models.JSONField(_("scopes"), validators=[check_scopes])
    jobs = models.JSONField(
        _("job names"),
        default=list,
        blank=True,
        validators=[check_names],
        help_text=_("Only these jobs. An empty list means all jobs that the API offers."),
    )
    created_at = models.DateTimeField(_("created"), default=timezone.now, editable=False)
    last_used_at = models.DateTimeField(_("last used"), null=True, editable=False)
    expires_at = models.DateTimeField(
        _("expires"),
        null=True,
        blank=True,
        help_text=_("The token opens nothing from this time on. Empty means that it never expires."),
    )
    per_minute = models.PositiveIntegerField(
        _("requests per minute"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_("More are answered 429. Empty means no limit."),
    )
    revoked_at = models.DateTimeField(_("revoked"), null=True, editable=False)
    old_digest = models.CharField(max_length=64, default="", db_default="", db_index=True, editable=False)
    old_until = models.DateTimeField(_("old secret until"), null=True, editable=False)

    objects = Tokens()

    class Meta:
        ordering = ["name"]
        verbose_name = _("API token")
        verbose_name_plural = _("API tokens")

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Raise ValidationError if a valid token has the name.  The name of one that is revoked or expired is free.

        Not a constraint of the database, because some databases have none with a condition: two tokens that are made
        at the same moment may share a name, and are then revoked together."""
        super().clean()
        others = ApiToken.objects.filter(name=self.name, revoked_at=None).exclude(pk=self.pk)
        if self.revoked_at is None and not self.has_expired() and not all(other.has_expired() for other in others):
            raise ValidationError({"name": _("There is a valid token of that name. Revoke it or choose another.")})

    def has_expired(self) -> bool:
        """Return whether its time is over."""
        return self.expires_at is not None and self.expires_at <= timezone.now()

    def unknown_jobs(self) -> list[str]:
        """Return its job names that are unknown here: mistakes or future remote types, therefore not an error."""
        return [name for name in self.jobs if registry.find(name) is None]

    def rotate(self, overlap: timedelta) -> str:
        """Return a new secret, which cannot be shown again.  The present one stays valid for `overlap`; one that was
        replaced before becomes invalid."""
        secret = PREFIX + secrets.token_urlsafe(32)
        self.old_digest, self.old_until, self.digest = self.digest, timezone.now() + overlap, digest_of(secret)
        self.save(update_fields=["old_digest", "old_until", "digest"])
        return secret

    def revoke(self) -> None:
        """Refuse its holder from now on.  The row stays, as a record; the name is free for another token."""
        if self.revoked_at is None:
            self.revoked_at = timezone.now()
            self.save(update_fields=["revoked_at"])
