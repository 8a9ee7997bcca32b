"""The settings of a project that Celery reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from django_jobs.compat.audit.findings import CallSite, Verdict
from django_jobs.compat.celery.conf import CONTENT, DEFAULTS
from django_jobs.compat.celery.exceptions import Unsupported
from django_jobs.compat.celery.missing import SETTINGS
from django_jobs.compat.celery.schedules import crontab, schedule

_OURS = "It has no effect: see the options of runworkers, and DJANGO_JOBS."
#: Settings, and beginnings of settings, that only Celery's own processes need.
_WITHOUT_EFFECT = (
    "broker_", "worker_", "redis_", "result_backend_", "result_extended", "result_persistent", "cache_backend",
    "database_", "beat_scheduler", "beat_max_loop_interval", "beat_sync_every", "enable_utc", "event_",
    "task_create_missing_queues", "task_default_exchange", "task_default_routing_key", "task_publish_retry",
    "task_queues", "task_send_sent_event", "task_track_started", "task_compression", "task_ignore_result",
)  # fmt: skip
_APPS = {
    "django_celery_beat": "Move its rows to Schedule: docs/howto/from-celery.md has a script.",
    "django_celery_results": "Results are in the store; for a table in the database, set ARCHIVE.",
}


def of_settings(settings: Mapping[str, Any], file: Path | None, root: Path) -> Iterator[CallSite]:
    """Yield a finding for each setting of Celery's."""
    lines = _lines(file)
    path = file.relative_to(root) if file is not None and file.is_relative_to(root) else Path("settings")
    for app, why in _APPS.items():
        if any(each.split(".")[0] == app for each in settings.get("INSTALLED_APPS", ())):
            yield CallSite("rewrite", path, lines.get("INSTALLED_APPS", 0), app, why)
    for name, value in settings.items():
        if name.startswith("CELERY_"):
            verdict, why = _verdict(name.removeprefix("CELERY_").lower(), value)
            yield CallSite(verdict, path, lines.get(name, 0), name, why)
            if name == "CELERY_BEAT_SCHEDULE" and isinstance(value, Mapping):
                yield from (_of_entry(path, lines.get(name, 0), key, entry) for key, entry in value.items())


def _verdict(name: str, value: Any) -> tuple[Verdict, str]:
    if name in SETTINGS:
        return ("rewrite", SETTINGS[name]) if value else ("works", "")
    if name in CONTENT:
        asked = {value} if isinstance(value, str) else set(value or ())
        good = asked <= {"json", "application/json"}
        return ("works", "") if good else ("rewrite", "Jobs are JSON. Pass ids instead of objects.")
    if name == "task_routes" and not isinstance(value, Mapping):
        return "look", "A router may return 'queue' and 'priority' only."
    if name in ("task_routes", "task_default_queue"):
        return "changes", "Every queue must be in DJANGO_JOBS['QUEUES']."
    if name == "broker_url":
        return "changes", "It only says in which direction priorities go. Jobs are in DJANGO_JOBS['STORE']."
    if name == "result_backend":
        return "changes", "Results are in the store, and stay for CELERY_RESULT_EXPIRES."
    if name in DEFAULTS:
        return "works", ""
    if name.startswith(_WITHOUT_EFFECT):
        return "changes", _OURS
    return "look", "The audit does not know this setting; the layer does not read it."


def _of_entry(path: Path, line: int, key: Any, entry: Any) -> CallSite:
    what = f"CELERY_BEAT_SCHEDULE[{key!r}]"
    when = entry.get("schedule") if isinstance(entry, Mapping) else None
    if isinstance(when, int | float | timedelta):
        when = schedule(when)
    elif type(when).__name__ == "crontab" and type(when).__module__.startswith("celery."):
        fields = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
        when = crontab(*(getattr(when, f"_orig_{field}", "*") for field in fields))
    if not isinstance(when, crontab | schedule):
        return CallSite("look", path, line, what, "Its schedule is neither a crontab nor an interval.")
    try:
        return CallSite("works", path, line, f"{what}: {when.cron}")
    except Unsupported as error:
        return CallSite("rewrite", path, line, what, str(error))


def _lines(file: Path | None) -> dict[str, int]:
    """Return where a module assigns its names."""
    if file is None or not file.exists():
        return {}
    return {
        target.id: node.lineno
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
