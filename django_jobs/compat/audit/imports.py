"""What becomes of an import of Celery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from django_jobs.compat import celery as layer
from django_jobs.compat.audit.findings import CallSite
from django_jobs.compat.celery import exceptions, signals
from django_jobs.compat.celery.missing import EXCEPTIONS, NAMES, SIGNALS

#: Packages that belong to Celery, and what to do with what is imported from them.
_PACKAGES = {
    "django_celery_beat": "Move its rows to Schedule: docs/howto/from-celery.md has a script.",
    "django_celery_results": "Read results with AsyncResult, or set ARCHIVE.",
    "kombu": "Remove it: queues are listed in DJANGO_JOBS['QUEUES'].",
    "flower": "Use the admin.",
}
#: Modules of Celery's own processes.
_INNER = ("celery.contrib", "celery.worker", "celery.bin", "celery.backends", "celery.beat")


def of_import(path: Path, line: int, source: str, name: str) -> Iterator[CallSite]:
    """Yield a finding for `from source import name`, or `import source` if the name is ""."""
    top, what = source.split(".")[0], f"from {source} import {name}" if name else f"import {source}"
    if top in _PACKAGES:
        yield CallSite("rewrite", path, line, what, _PACKAGES[top])
    elif top == "celery" and not name:
        yield CallSite("look", path, line, what, "Import names from django_jobs.compat.celery.")
    elif top == "celery":
        known, missing = _names(source)
        if name in known:
            yield CallSite("works", path, line, what, "Change the import.")
        elif name in missing:
            yield CallSite("rewrite", path, line, what, missing[name])
        elif source.startswith(_INNER):
            yield CallSite("rewrite", path, line, what, "The layer has no such module.")
        else:
            yield CallSite("look", path, line, what, "The audit does not know what this is.")


def _names(source: str) -> tuple[frozenset[str], Mapping[str, str]]:
    """Return the names of a module that the layer has, and those that it has not, with what to write."""
    if source == "celery.signals":
        return frozenset(signals.__all__), SIGNALS
    if source == "celery.exceptions":
        return frozenset(exceptions.__all__), EXCEPTIONS
    if source.startswith(_INNER):
        return frozenset(), NAMES
    return frozenset(layer.__all__), NAMES
