"""`audit-celery`: what of a project that uses Celery works with `django_jobs.compat.celery`, and what does not."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings as django_settings

from django_jobs.conf import get_settings, settings_module
from django_jobs.formatting import counted
from django_jobs.management.jobs_commands.base import CommandResult, Subcommand, no_arguments, table

#: The settings that the audit reads, and those with the prefix of Celery.
_READ = ("INSTALLED_APPS", "DJANGO_JOBS")


def audit_celery(options: Mapping[str, Any]) -> CommandResult:
    # Not before: the layer has jobs of its own, which a process without it must not know.
    from django_jobs.compat.audit import audit
    from django_jobs.compat.audit.findings import WORDS

    names = [name for name in dir(django_settings) if name.startswith("CELERY_")]
    read = {name: getattr(django_settings, name, None) for name in (*_READ, *names)}
    file = getattr(sys.modules.get(settings_module()), "__file__", None)
    found = audit(Path(get_settings().base_dir).resolve(), read, Path(file).resolve() if file else None)
    data = [{**each._asdict(), "path": str(each.path), "verdict": WORDS[each.verdict]} for each in found]
    # What works is often the longest part: the rest stands below it, next to the numbers.
    by_verdict = sorted(found, key=lambda each: list(WORDS).index(each.verdict))
    rows = [(WORDS[each.verdict], f"{each.path}:{each.line}", each.what, each.why) for each in by_verdict]
    counts = [(WORDS[each], sum(one.verdict == each for one in found)) for each in WORDS]
    summary = ", ".join(f"{words}: {number}" for words, number in counts)
    text = f"{table(_HEADINGS, rows)}\n\n" if rows else ""
    must = any(each.verdict == "rewrite" for each in found)
    return CommandResult(data, f"{text}{counted(len(found), 'place')}. {summary}.", int(must))


_HEADINGS: Sequence[str] = ("verdict", "place", "what", "why")
AUDIT = Subcommand(
    "List what of this project's Celery works with django_jobs.compat.celery; exit 1 if anything must be rewritten.",
    no_arguments,
    audit_celery,
)
