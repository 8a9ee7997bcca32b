"""Prometheus metrics, read from the store at scrape time: processes keep no state, so restarts lose nothing.

Extra `metrics`.  `register()` adds the metrics to your own registry; the HTTP API serves them at `metrics`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseFault

from django_jobs.browse import queue_names, readable_stats
from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.times import BOUNDS, Times, add_times
from django_jobs.core.values import SILENT, QueueStats, State
from django_jobs.exceptions import StoreError, UnknownJob
from django_jobs.operations import diagnosis, kept
from django_jobs.remote import known
from django_jobs.stores import get_store

logger = logging.getLogger("django_jobs.metrics")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Names that this process does not know share one label, so that a caller who can enqueue cannot flood Prometheus.
OTHER = "other"
UP = "1 if the store could be read, else 0; then there are no other metrics but those of the outbox."
#: event in the store's totals → metric, help; plus a `status` if several events share one metric.
COUNTERS = (
    ("enqueued", "django_jobs_enqueued", "Jobs that were accepted.", ""),
    ("succeeded", "django_jobs_processed", "Attempts that ended, by outcome.", "succeeded"),
    ("failed", "django_jobs_processed", "Attempts that ended, by outcome.", "failed"),
    ("retried", "django_jobs_retries", "Attempts that will be retried.", ""),
    ("dead", "django_jobs_dead", "Jobs that became dead.", ""),
)
TIMES = (
    ("django_jobs_wait_seconds", "How long jobs waited from when they could run to the claim, by attempts that ended."),
    ("django_jobs_run_seconds", "How long attempts ran."),
)
QUEUE_COUNTERS = ("cancelled", "expired", "recovered", "trimmed_dead", "not_archived")


class JobsCollector:
    """A collector: `prometheus_client` calls it at every scrape."""

    def collect(self) -> Iterator[Any]:
        """Yield all metrics, from one read of the store.  If that fails, yield only `django_jobs_up` and the outbox: an
        error here would take the other metrics of the registry with it."""
        try:
            store = get_store()
            queues, everyone, now = readable_stats(queue_names()), store.workers(silent=True), store.now()
            workers = [each for each in everyone if each.info.get("state") != SILENT]
            times = store.times([each.queue for each in queues])
            found = diagnosis.check(diagnosis.measure(workers=everyone))
        except StoreError as error:
            logger.error("The metrics cannot be read from the store: %s", error)
            yield _gauge("django_jobs_up", UP, [], [([], 0)])
            yield from outbox_gauges()
            return
        yield _gauge("django_jobs_up", UP, [], [([], 1)])
        names = {*registry.names(), *known()}
        yield from counters(queues, names)
        yield from histograms(times, names)
        yield from gauges(queues)
        yield from finding_gauges(found)
        yield from outbox_gauges()
        yield _gauge("django_jobs_workers", "Running `runworkers` commands.", [], [([], len(workers))])
        yield _gauge(
            "django_jobs_worker_last_heartbeat_seconds",
            "Seconds since the last heartbeat of a worker.",
            ["worker"],
            [([worker.name], max(0, now - worker.seen_at) / 1000) for worker in workers],
        )

    def describe(self) -> list[Any]:
        """Return nothing, so that registering does not need the store."""
        return []


def counters(queues: Iterable[QueueStats], names: set[str]) -> Iterator[Any]:
    """Yield the counters, per queue and job name."""
    from prometheus_client.core import CounterMetricFamily

    # A counter that appears with its first count hides it: an increase is the difference of two samples.
    own: dict[str, list[str]] = {}
    for name in sorted(names):
        own.setdefault(_queue_of(name), []).append(name)
    all_child_processes: dict[str, Any] = {}
    for event, metric, text, status in COUNTERS:
        labels = ["queue", "job", "status"] if status else ["queue", "job"]
        child_processes = all_child_processes.setdefault(metric, CounterMetricFamily(metric, text, labels=labels))
        for queue in queues:
            for job, count in _per_job(queue, event, names, own.get(queue.queue, ())).items():
                child_processes.add_metric([queue.queue, job, status] if status else [queue.queue, job], count)
    yield from all_child_processes.values()
    for event in QUEUE_COUNTERS:
        text = f"Jobs that were {event.replace('_', ' ')}."
        child_processes = CounterMetricFamily(f"django_jobs_{event}", text, labels=["queue"])
        for queue in queues:
            child_processes.add_metric([queue.queue], queue.totals.get(event, 0))
        yield child_processes


def histograms(times: Mapping[str, Mapping[str, Times]], names: set[str]) -> Iterator[Any]:
    """Yield the waiting and running times, per queue and job name."""
    from prometheus_client.core import HistogramMetricFamily

    waiting, running = (HistogramMetricFamily(name, text, labels=["queue", "job"]) for name, text in TIMES)
    bounds = [*(str(bound / 1000) for bound in BOUNDS), "+Inf"]
    for queue, found in times.items():
        own = {job: each for job, each in found.items() if job in names}
        rest = [each for job, each in found.items() if job not in names]
        if rest:
            own[OTHER] = add_times(rest)
        for job, each in own.items():
            for family, histogram in ((waiting, each.waiting), (running, each.running)):
                buckets = list(zip(bounds, histogram.up_to, strict=True))
                family.add_metric([queue, job], buckets, sum_value=histogram.sum / 1000)
    yield from (waiting, running)


def finding_gauges(report: diagnosis.Report) -> Iterator[Any]:
    """Yield the findings, the number of things that could not be checked, and the findings under their older names."""
    found = [(each.kind, each.severity.value, each.queue, each.since) for each in report.findings]
    yield from _counted("django_jobs_findings", "django_jobs_finding_since_timestamp_seconds", "a finding", found)
    older = [diagnosis.old_name(each) for each in report.findings]
    alarms = [(*name, each.queue, each.since) for name, each in zip(older, report.findings, strict=True)]
    yield from _counted("django_jobs_alarms", "django_jobs_alarm_since_timestamp_seconds", "an alarm", alarms)
    for name in ("django_jobs_findings_unchecked", "django_jobs_alarms_unchecked"):
        yield _gauge(name, "Things that could not be checked.", [], [([], len(report.unchecked))])


def _counted(name: str, since_name: str, what: str, found: Iterable[tuple[str, str, str, int]]) -> Iterator[Any]:
    numbers: dict[tuple[str, str, str], int] = {}
    since: dict[tuple[str, str, str], float] = {}
    for *labels, at in found:
        key = (labels[0], labels[1], labels[2])
        numbers[key] = numbers.get(key, 0) + 1
        if at:
            since[key] = min(at / 1000, since.get(key, at / 1000))
    named = ["kind", "severity", "queue"]
    text = "What is wrong, as the overview shows it: for each kind and queue, how much."
    yield _gauge(name, text, named, [(list(key), n) for key, n in numbers.items()])
    text = f"Since when {what} stands (Unix time), where that is known."
    yield _gauge(since_name, text, named, [(list(key), at) for key, at in since.items()])


def outbox_gauges() -> Iterator[Any]:
    """Yield what waits in the outbox; nothing if OUTBOX is off, or the database does not answer."""
    if not get_settings().outbox:
        return
    try:
        found = kept.contents()
    except (DatabaseFault, ImproperlyConfigured) as error:
        logger.error("The metrics of the outbox cannot be read from the database: %s", error)
        return
    yield _gauge(
        "django_jobs_outbox_entries",
        "Entries of the outbox: those that workers send, and those that wait for a decision.",
        ["state"],
        [(["waiting"], found.waiting), (["held"], found.held)],
    )
    text = "How long the oldest entry of the outbox has been waiting to be sent."
    yield _gauge("django_jobs_outbox_oldest_seconds", text, [], [([], found.oldest)])


def gauges(queues: Iterable[QueueStats]) -> Iterator[Any]:
    """Yield the gauges, per queue."""
    yield _gauge(
        "django_jobs_queue_depth", "Queued jobs.", ["queue"], [([q.queue], q.counts.get("queued", 0)) for q in queues]
    )
    yield _gauge(
        "django_jobs_queue_latency_seconds",
        "How long the oldest job that could run has been waiting.",
        ["queue"],
        [([q.queue], q.latency / 1000) for q in queues],
    )
    yield _gauge(
        "django_jobs_paused",
        "1 while the queue is paused.",
        ["queue"],
        [([q.queue], int(bool(q.paused))) for q in queues],
    )
    yield _gauge(
        "django_jobs_archive_backlog",
        "Finished jobs that wait for the archive.",
        ["queue"],
        [([q.queue], q.unarchived) for q in queues],
    )
    yield _gauge(
        "django_jobs_jobs",
        "Jobs in each state.",
        ["queue", "state"],
        [([q.queue, state.value], q.counts.get(state, 0)) for q in queues for state in State],
    )


def _per_job(queue: QueueStats, event: str, names: set[str], own: Iterable[str]) -> dict[str, int]:
    """Return the counts of one event by job name; unknown names are under OTHER, so that sums are right.

    `own`: the names that begin at 0."""
    counts = dict.fromkeys(own, 0)
    named = 0
    for key, count in queue.totals.items():
        kind, _, job = key.partition(":")
        if kind == event and job:
            named += count
            label = job if job in names else OTHER
            counts[label] = counts.get(label, 0) + count
    rest = queue.totals.get(event, 0) - named
    if rest > 0:
        counts[OTHER] = counts.get(OTHER, 0) + rest
    return counts


def _queue_of(name: str) -> str:
    try:
        return registry.get(name).queue
    except UnknownJob:  # its type was deleted a moment ago
        return ""


def _gauge(name: str, text: str, labels: list[str], samples: Iterable[tuple[list[str], float]]) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    child_processes = GaugeMetricFamily(name, text, labels=labels)
    for values, number in samples:
        child_processes.add_metric(values, number)
    return child_processes


def register(target: Any = None) -> JobsCollector:
    """Add the metrics to a prometheus_client registry (default: the global one), for your own exporter."""
    collector = JobsCollector()
    if target is None:
        target = _client().REGISTRY
    target.register(collector)
    return collector


def text() -> bytes:
    """Return all metrics in Prometheus' text format."""
    client = _client()
    own = client.CollectorRegistry()
    own.register(JobsCollector())
    return client.generate_latest(own)  # type: ignore[no-any-return]


def _client() -> Any:
    try:
        import prometheus_client
    except ImportError as error:
        raise ImproperlyConfigured(
            f"Metrics of {get_settings().namespace!r} need prometheus_client: pip install 'django-jobs-redis[metrics]'."
        ) from error
    return prometheus_client
