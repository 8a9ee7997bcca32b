"""`alarms`: what is wrong now, as on the overview of the admin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_jobs import alarms
from django_jobs.management.jobs_commands.base import Answer, Subcommand, no_arguments, plain


def show(options: Mapping[str, Any]) -> Answer:
    """Print every alarm, worst first; exit 1 if one of them is critical."""
    report = alarms.check()
    data = report.as_json()
    lines = []
    for alarm in data["alarms"]:
        since = f" Since {alarm['since']}." if alarm["since"] else ""
        reason = f" ({plain(alarm['reason'], 200)})" if alarm["reason"] else ""
        lines.append(f"{alarm['severity'].upper():<8} {alarm['text']}{reason}{since}")
    lines += [f"{'UNKNOWN':<8} {each['text']}" for each in data["unchecked"]]
    if report.is_well:
        lines.append("No problems: everything was checked, and there is no alarm.")
    critical = any(alarm.severity is alarms.Severity.CRITICAL for alarm in report.alarms)
    return Answer(data, "\n".join(lines), int(critical))


ALARMS = Subcommand("What is wrong now, as on the overview of the admin.", no_arguments, show)
