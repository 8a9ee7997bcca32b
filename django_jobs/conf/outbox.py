"""Whether the rest of the project fits the setting OUTBOX.  For the system checks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Warning
from django.db import connections

from django_jobs.conf import HostSettings, raw_setting

#: Seconds: restarts of the store, and of all workers, may take that long.
LEAST_KNOWN = 60


def outbox_warnings(raw: Mapping[str, Any], around: HostSettings) -> Iterator[CheckMessage]:
    """Yield W007 to W010."""
    if not raw.get("OUTBOX"):
        return
    if raw.get("EAGER"):
        message = "DJANGO_JOBS['OUTBOX'] has no effect, because EAGER is on: jobs run where they are enqueued."
        yield Warning(message, hint="Use EAGER only in tests and development.", id="django_jobs.W007")
    if raw.get("STORE") == "memory":
        message = "DJANGO_JOBS['OUTBOX'] is on, and STORE is 'memory': what was sent is lost when the process ends."
        yield Warning(message, hint="Use a URL, 'cache:ALIAS' or 'embedded'.", id="django_jobs.W007")
    known = raw.get("IDEMPOTENCY", LEAST_KNOWN)
    if isinstance(known, int | float) and known < LEAST_KNOWN:
        message = (
            f"DJANGO_JOBS['IDEMPOTENCY'] is {known!r}, and OUTBOX is on: entries that are older than these seconds are "
            "not sent by themselves, so a short outage of the store leaves entries that a person must decide about."
        )
        yield Warning(message, hint=f"Use at least {LEAST_KNOWN}, or the default of a day.", id="django_jobs.W009")
    if raw.get("ON_COMMIT") is False:
        message = "DJANGO_JOBS['OUTBOX'] keeps nothing, because ON_COMMIT is False: calls ask the store at once."
        hint = "Remove ON_COMMIT, and pass on_commit=False in the calls that must not wait for the commit."
        yield Warning(message, hint=hint, id="django_jobs.W010")
    database = raw.get("DATABASE", "default")
    if raw["OUTBOX"] is True and around.is_asgi and database in around.atomic_requests:
        yield Warning(
            f"DATABASES[{database!r}] has ATOMIC_REQUESTS, and the project has ASGI_APPLICATION. Django refuses async "
            "views there unless they are marked with non_atomic_requests, and what these enqueue is not in the outbox.",
            hint='Enqueue inside atomic() in a synchronous function, or set OUTBOX to "always".',
            id="django_jobs.W008",
        )


def check_outbox_table(
    app_configs: Any = None, databases: Collection[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """W006, with `check --database`: is the table of the outbox there?

    A warning, because `migrate` makes the same check before it creates the table."""
    raw = raw_setting()
    if not isinstance(raw, Mapping) or not raw.get("OUTBOX"):
        return []
    database = raw.get("DATABASE", "default")
    table = apps.get_model("django_jobs", "OutboxEntry")._meta.db_table
    if database not in (databases or ()) or table in connections[database].introspection.table_names():
        return []
    message = f"DJANGO_JOBS['OUTBOX'] is on, and the database {database!r} has no table {table}."
    return [Warning(message, hint=f"Run `manage.py migrate --database {database}`.", id="django_jobs.W006")]
