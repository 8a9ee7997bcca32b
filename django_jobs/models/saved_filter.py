"""Filters of lists of jobs that users of the admin have given a name: each is seen only by its owner."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from django.apps import apps
from django.conf import settings
from django.db import Error as DatabaseFault
from django.db import models, router, transaction
from django.utils.translation import gettext_lazy as _

from django_jobs.runtime.savepoint import savepoint

logger = logging.getLogger("django_jobs")

#: Characters of a name, and of the address of a list.
NAME, QUERY = 60, 2_000


class SavedFilter(models.Model):
    """A list of jobs: its state, and its filters and order as they are in an address."""

    # No foreign key: the table of the users may be in another database, and their keys of any type.
    owner = models.CharField(_("owner"), max_length=190, editable=False)
    state = models.CharField(_("state"), max_length=20, editable=False)
    name = models.CharField(_("name"), max_length=NAME, editable=False)
    query = models.CharField(_("filter"), max_length=QUERY, editable=False)

    class Meta:
        default_permissions: ClassVar[Sequence[str]] = ()
        ordering: ClassVar[Sequence[str]] = ["name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["owner", "state", "name"], name="django_jobs_saved_filter")
        ]
        verbose_name = _("saved filter")
        verbose_name_plural = _("saved filters")

    def __str__(self) -> str:
        return self.name


def forget_with_user(instance: models.Model, using: str, **_more: Any) -> None:
    """Delete the saved filters of a user who was just deleted; in another database, when that is committed."""
    alias, owner = router.db_for_write(SavedFilter), str(instance.pk)
    if alias == using:
        forget_filters(owner, alias)
    else:
        transaction.on_commit(partial(forget_filters, owner, alias), using=using)


def forget_filters(owner: str, alias: str) -> None:
    """Delete the saved filters of one user.  Without the table, or the database, the user can still be deleted."""
    try:
        with savepoint(alias):
            SavedFilter.objects.using(alias).filter(owner=owner).delete()
    except DatabaseFault as error:
        logger.warning("The saved filters of the deleted user %s remain: %s", owner, error)


def follow_users() -> None:
    """Let the filters of a user go with the user, if the project has users: a worker may have none.

    Called when all apps are loaded.  A lazy sender would be an error of `check` in a project without users."""
    with suppress(LookupError):
        sender = apps.get_model(settings.AUTH_USER_MODEL)
        models.signals.post_delete.connect(forget_with_user, sender=sender, dispatch_uid="django_jobs.saved_filters")
