"""`manage.py runworkers`: fetches and runs jobs, and does everything else a queue needs, until it is told to stop."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_jobs.conf import QueueSettings, Settings, get_settings
from django_jobs.stores import get_store
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.duties import duties
from django_jobs.worker.reload import start_again
from django_jobs.worker.supervisor import Supervisor


class Command(BaseCommand):
    help = "Run background jobs until SIGTERM or SIGINT. Any number of these may run, on any number of machines."

    def add_arguments(self, parser: CommandParser) -> None:
        settings = get_settings()
        parser.add_argument("--queues", type=_names, help="comma-separated; default: all of DJANGO_JOBS['QUEUES']")
        parser.add_argument("--exclude-queues", type=_names, default=[], help="comma-separated")
        parser.add_argument("--burst", action="store_true", help="exit when nothing is left to run")
        parser.add_argument(
            "--processes", type=_whole(1), default=settings.processes, help="default: PROCESSES (%(default)s)"
        )
        parser.add_argument(
            "--threads", type=_whole(1), default=settings.threads, help="per process; default: THREADS (%(default)s)"
        )
        parser.add_argument(
            "--async-concurrency", type=_whole(1), default=100, help="async jobs at once per process (%(default)s)"
        )
        parser.add_argument(
            "--drain-timeout",
            type=_seconds,
            default=settings.shutdown_timeout,
            help="seconds running jobs have after the first signal; default: SHUTDOWN_TIMEOUT (%(default)s)",
        )
        parser.add_argument("--max-jobs", type=_whole(1), default=0, help="replace a process after that many jobs")
        parser.add_argument("--max-memory", type=_whole(1), default=0, help="replace a process above that many MiB")
        parser.add_argument("--reload", action="store_true", help="start again when code changes (development)")
        parser.add_argument("--no-periodic", action="store_true", help="do not enqueue periodic jobs")
        parser.add_argument(
            "--name", type=_name, default="", help="what this worker is called in the admin; default: host and pid"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        settings = get_settings()
        config = WorkerConfig(
            queues=_choose(settings, options["queues"], options["exclude_queues"]),
            name=options["name"],
            processes=options["processes"],
            threads=options["threads"],
            async_concurrency=options["async_concurrency"],
            drain_timeout=options["drain_timeout"],
            max_jobs=options["max_jobs"],
            max_memory=options["max_memory"],
            burst=options["burst"],
            reload=options["reload"],
            periodic=not options["no_periodic"],
            strict=settings.queue_order == "strict",
            lease=int(settings.lease * 1000),
        )
        store = get_store()
        supervisor = Supervisor(store, config, duties(store, config))
        status = supervisor.run()
        if supervisor.code_has_changed:
            start_again()
        if status:
            sys.exit(status)


def _choose(settings: Settings, wanted: list[str] | None, excluded: list[str]) -> tuple[QueueSettings, ...]:
    for name in [*(wanted or []), *excluded]:
        if name not in settings.queues:
            known = ", ".join(settings.queues)
            raise CommandError(f"There is no queue {name!r} in DJANGO_JOBS['QUEUES']. Known queues: {known}.")
    chosen = tuple(settings.queues[name] for name in wanted or settings.queues if name not in excluded)
    if not chosen:
        raise CommandError("No queue is left: --exclude-queues names all of them.")
    return chosen


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _name(text: str) -> str:
    if text and not re.fullmatch(r"[\w.:@+-]{1,100}", text):
        raise ArgumentTypeError(f"{text!r} is no name: use up to 100 letters, digits and . : @ + - _")
    return text


def _whole(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ArgumentTypeError(f"{text!r} is not a whole number from {least} up")
        return int(text)

    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e7:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds
