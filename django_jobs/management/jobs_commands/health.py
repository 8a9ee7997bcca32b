"""`health`: whether workers do their work; exit 0 or 1, for probes and monitoring."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_jobs.browse.worker_health import problems_of, too_slow
from django_jobs.conf import get_settings
from django_jobs.core.values import QueueStats, WorkerInfo
from django_jobs.exceptions import JobsError
from django_jobs.management.jobs_commands.base import Answer, Subcommand, plain
from django_jobs.remote import pull_queues
from django_jobs.stores import get_store


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--worker", default="", metavar="NAME", help="only this worker, and only its queues")
    parser.add_argument(
        "--max-latency",
        type=_seconds,
        metavar="S",
        help="unhealthy also if the oldest job has waited longer, in seconds",
    )


def health(options: Mapping[str, Any]) -> Answer:
    """Exit 1 if no worker runs, if one does not do its work, or if the store cannot be read."""
    try:
        found = _problems(options["worker"], options["max_latency"])
    except (JobsError, ImproperlyConfigured) as error:
        found = [str(error)]
    text = "\n".join(plain(each, 500) for each in found) or "Healthy."
    return Answer({"healthy": not found, "problems": found}, text, int(bool(found)))


def _problems(name: str, max_latency: float | None) -> list[str]:
    store = get_store()
    workers = [worker for worker in store.workers() if name in ("", worker.name)]
    if not workers:
        return [f"No worker named {name} runs." if name else "No worker runs."]
    foreign, now = pull_queues(), store.now()
    served = sorted({queue for worker in workers for queue in _queues_of(worker)})
    queues: list[QueueStats] = [stats for stats in store.stats(served) if stats.queue not in foreign]
    found = [f"{worker.name}: {each}" for worker in workers for each in problems_of(worker, queues, now)]
    return found if max_latency is None else [*found, *too_slow(queues, max_latency)]


def _queues_of(worker: WorkerInfo) -> list[str]:
    named = worker.info.get("queues")
    known = get_settings().queues
    return [queue for queue in named if queue in known] if isinstance(named, list) else []


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


HEALTH = Subcommand("Whether workers do their work: exit 0, or 1 and the reasons.", arguments, health)
