"""What the archive and the outbox have in common: rows with the arguments of jobs."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from django.http import HttpRequest

from django_jobs.admin.common.guarded import GuardedAdmin
from django_jobs.admin.common.permissions import ARGUMENTS, may

#: Columns that have arguments, or quote them.
CLOSED = frozenset({"record", "result", "log", "error", "data"})


class LookedAtAdmin(GuardedAdmin):
    """Rows that nobody adds or changes here, with arguments for those who may see them."""

    change_form_template = "admin/django_jobs/looked_at.html"
    list_per_page = 50
    show_full_result_count = False
    of_arguments: ClassVar[tuple[str, ...]] = ("shown_arguments",)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        left_out = () if may(request, ARGUMENTS) else self.of_arguments
        return [name for name in super().get_fields(request, obj) if name not in left_out]

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """An address may not filter by a column that is hidden: whoever can try values finds out what it has."""
        return lookup.partition("__")[0] not in CLOSED and super().lookup_allowed(lookup, value, request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def readable(value: object) -> str:
    """Return JSON as text; the admin escapes it."""
    return json.dumps(value, ensure_ascii=False, indent=1, default=str)
