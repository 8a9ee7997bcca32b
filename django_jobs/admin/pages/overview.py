"""The first page: health, failures, and links to the details."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse
from django.utils.translation import gettext as _

from django_jobs import browse
from django_jobs.admin.common import permissions
from django_jobs.admin.common.charts import Chart, clock, failed_text, marked, read_period, stacked, succeeded_text
from django_jobs.admin.common.console import Console
from django_jobs.admin.pages import trends
from django_jobs.admin.pages.worker_rows import longest_running, worker_rows
from django_jobs.browse.trends import MOST_QUEUES, total_trend
from django_jobs.core.values import SILENT, QueueStats
from django_jobs.formatting import duration
from django_jobs.formatting import number as grouped
from django_jobs.operations import diagnosis
from django_jobs.operations.diagnosis.rules import OUTBOX_AGE
from django_jobs.stores import get_store

#: Maximum queues and workers on the overview; their own pages show all.
LINES = 10
#: Seconds that the oldest entry of the outbox has waited when it is shown; after OUTBOX_AGE, it is a finding.
OUTBOX_SHOWN = 5


def overview(console: Console) -> HttpResponse:
    """Show counts, charts, latency, workers, and what needs attention."""
    return console.render("overview.html", _("Background jobs"), overview_context(console), here="overview")


def overview_context(console: Console) -> dict[str, Any]:
    """Return the context of the overview; the app's index page uses it, too."""
    period = read_period(console.request.GET, "hour")
    store, counted = get_store(), console.counted
    known = store.workers(silent=True)
    workers = [each for each in known if each.info.get("state") != SILENT]
    shown = browse.series(period, counted.names) if period != "week" else None
    week = total_trend(counted.names, period) if shown is None else None
    facts = diagnosis.measure(counted, known, shown if period == "hour" else None, arguments=console.sees_arguments)
    report = diagnosis.check(facts)
    return {
        "period": period,
        "report": report,
        "findings": [(found, console.cause(found), left) for found, left in report.lines()],
        "acknowledged": [
            (found, console.cause(found), diagnosis.acknowledged_text(known)) for found, known in report.acknowledged
        ],
        "may_acknowledge": console.may(permissions.PAUSE),
        "outbox": facts.outbox if facts.outbox and OUTBOX_SHOWN <= facts.outbox.oldest < OUTBOX_AGE else None,
        "charts": charts(shown, console.releases) if shown else trends.charts(week, console.releases) if week else [],
        "most_queues": MOST_QUEUES,
        "busiest": busiest(list(counted.queues.values())),
        "queue_number": len(counted.names),
        "workers": worker_rows(workers[:LINES], store.now()),
        "worker_number": len(workers),
        "longest": longest_running(workers, LINES),
        "counted_at": counted.at,
        "missing": counted.missing,
    }


def busiest(stats: list[QueueStats]) -> list[QueueStats]:
    """Return the queues with the longest waits first, then those with most jobs."""
    return sorted(stats, key=lambda s: (-s.latency, -s.counts.get("queued", 0), -s.counts.get("running", 0)))[:LINES]


def charts(series: browse.Series, releases: Mapping[str, int]) -> list[Chart]:
    """Return the charts of throughput, failures and waiting time, with the releases that appeared then (`marked`)."""
    labels = [clock(start) for start in series.starts]
    succeeded, failed = series.values["succeeded"], series.values["failed"]
    waits = [
        total / number if number else 0.0 for total, number in zip(series.values["wait_ms"], succeeded, strict=True)
    ]
    says = _("%(time)s: %(good)s succeeded, %(bad)s failed")
    both = [
        says % {"time": label, "good": grouped(good), "bad": grouped(bad)}
        for label, good, bad in zip(labels, succeeded, failed, strict=True)
    ]
    done_bars, done_top = stacked([("good", succeeded), ("bad", failed)], both)
    texts = [f"{a}: {grouped(b)}" for a, b in zip(labels, failed, strict=True)]
    fail_bars, fail_top = stacked([("bad", failed)], texts)
    wait_bars, wait_top = stacked(
        [("wait", waits)], [f"{a}: {duration(b)}" for a, b in zip(labels, waits, strict=True)]
    )
    ends = (labels[0], labels[-1])
    done, bad = succeeded_text(sum(succeeded)), failed_text(sum(failed))
    mean = sum(series.values["wait_ms"]) / max(1, sum(succeeded))
    waited = _("%(time)s on average") % {"time": duration(mean)}
    found = [
        Chart(_("Throughput"), [("good", done), ("bad", bad)], done_bars, grouped(int(done_top)), *ends, not done_bars),
        Chart(_("Failures"), [("bad", bad)], fail_bars, grouped(int(fail_top)), *ends, not fail_bars),
        Chart(_("Waiting time"), [("wait", waited)], wait_bars, duration(wait_top), *ends, not wait_bars),
    ]
    return marked(found, releases, series.starts[0], series.starts[-1] + series.width, series.period)
