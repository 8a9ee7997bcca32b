"""Filters of lists of jobs that users of the admin have given a name: each is seen only by its owner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

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
