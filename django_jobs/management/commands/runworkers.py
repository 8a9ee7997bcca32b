"""`manage.py runworkers`: claims and runs jobs, and does all maintenance of the queues, until it is told to stop."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser

import django_jobs
from django_jobs import middleware
from django_jobs.conf import Settings, get_settings, host_settings, store_in_use
from django_jobs.conf.queues import Queues, covers, is_pattern
from django_jobs.conf.values import KEYS, Judge, whole
from django_jobs.core import registry
from django_jobs.exceptions import StoreCorrupt, StoreError, StoreFull, StoreUnavailable
from django_jobs.formatting import counted
from django_jobs.runtime.base_command import JobsCommand
from django_jobs.stores import get_store
from django_jobs.stores.redis import Store
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.cpus import usable_cpus
from django_jobs.worker.maintenance.agenda import tasks_for
from django_jobs.worker.parent.burst import waiting_now
from django_jobs.worker.parent.reload import start_again
from django_jobs.worker.parent.supervisor import Supervisor
from django_jobs.worker.served_queues import ServedQueues

DRAIN = (
    "run the jobs that are waiting now, then exit. These are the jobs that are queued or due at the start, and jobs "
    "blocked by a limit, if it makes room in the meantime. The rest is left for other workers: jobs for a later time, "
    "retries of jobs that fail in the meantime, jobs that those jobs enqueue, and everything that is paused. "
    "Schedules do not run."
)


class Command(JobsCommand):
    help = (
        "Run background jobs until SIGTERM or SIGINT. You can start any number of workers, on any number of machines."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        # handle() fills in the defaults: the checks must be able to report a DJANGO_JOBS that cannot be read.
        parser.add_argument(
            "--queues", type=_some_names,
            help="comma-separated, names or patterns as 'tenant-*'; default: all of DJANGO_JOBS['QUEUES']",
        )  # fmt: skip
        parser.add_argument("--exclude-queues", type=_names, default=[], help="comma-separated, as for --queues")
        ending = parser.add_mutually_exclusive_group()
        ending.add_argument("--burst", action="store_true", help="exit when no job is left to run")
        ending.add_argument("--drain", action="store_true", help=DRAIN)
        parser.add_argument(
            "--processes", type=_whole(KEYS["PROCESSES"]), help="default: PROCESSES, or one per usable CPU"
        )
        parser.add_argument("--threads", type=_whole(KEYS["THREADS"]), help="per process; default: THREADS, or 8")
        parser.add_argument(
            "--async-concurrency",
            type=_whole(whole(1, 10_000)),
            default=100,
            help="async jobs at the same time per process",
        )
        parser.add_argument(
            "--drain-timeout",
            type=_seconds,
            help="seconds that running jobs have to finish after the first signal; default: SHUTDOWN_TIMEOUT, or 25",
        )
        parser.add_argument(
            "--max-jobs", type=_whole(whole(1, 10**9)), default=0, help="replace a process after this many jobs"
        )
        parser.add_argument(
            "--max-memory", type=_whole(whole(1, 10**7)), default=0, help="replace a process above this many MiB"
        )
        parser.add_argument("--reload", action="store_true", help="start again when code changes (development)")
        parser.add_argument("--no-periodic", action="store_true", help="do not enqueue periodic jobs")
        parser.add_argument(
            "--name", type=_name, default="", help="the name of this worker in the admin; default: host and pid"
        )
        parser.add_argument(
            "--health-file", default="", metavar="PATH",
            help="touch this file every few seconds while leases are renewed and the processes answer",
        )  # fmt: skip
        parser.add_argument(
            "--http", type=_address, metavar="ADDRESS",
            help="answer /livez, /readyz and /metrics at HOST:PORT, without authentication",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        settings, drain = get_settings(), options["drain_timeout"]
        config = WorkerConfig(
            queues=_choose(settings.queues, options["queues"], options["exclude_queues"]),
            name=options["name"],
            health_file=options["health_file"],
            http=options["http"],
            processes=options["processes"] or settings.processes or usable_cpus(),
            threads=options["threads"] or settings.threads,
            async_concurrency=options["async_concurrency"],
            drain_timeout=settings.shutdown_timeout if drain is None else drain,
            max_jobs=options["max_jobs"],
            max_memory=options["max_memory"],
            burst=options["burst"],
            reload=options["reload"],
            periodic=not (options["no_periodic"] or options["drain"]),
            strict=settings.queue_order == "strict",
            lease=int(settings.lease * 1000),
        )
        try:
            middleware.build(settings.middleware)
        except ImproperlyConfigured as error:
            # Every job would meet it, and take its process with it.
            raise CommandError(str(error)) from error
        if config.http is not None:
            _try_address(config.http)
        store, address = _reach(settings)
        with suppress(StoreError):  # as for the address: the worker looks again
            config.served.look(store)
        if options["drain"]:
            config = _draining(store, config)
            if not config.queues:
                if options["verbosity"]:
                    self.stdout.write("No jobs are waiting.")
                return
        store.prepare()
        supervisor = Supervisor(store, config, tasks_for(store, config))
        if options["verbosity"]:
            _log_to_console()
            self.stdout.write(
                f"django_jobs {django_jobs.__version__}, settings {os.environ.get('DJANGO_SETTINGS_MODULE')!r}, "
                f"jobs at {address}, namespace {settings.namespace!r}\n"
                f"Worker {supervisor.name}: {supervisor.worker_status.summary()}; "
                f"it knows {counted(len(registry.names()), 'job')}. "
                "Quit with Control-C."
            )
        status = supervisor.run()
        if supervisor.code_has_changed:
            start_again()
        if status:
            sys.exit(status)


def _reach(settings: Settings) -> tuple[Store, str]:
    """Return the store and its address.  Raises CommandError if waiting would not help, as with a wrong password."""
    if store_in_use() == "memory":
        which = "STORE" if settings.store == "memory" else "TEST_STORE"
        raise CommandError(
            f"DJANGO_JOBS['{which}'] is 'memory': a worker cannot see the jobs of other processes. "
            "Use a URL, or 'embedded'."
        )
    try:
        store = get_store()
        return store, store.describe().get("address", settings.store.partition(":")[0])
    except (StoreUnavailable, StoreFull, StoreCorrupt):
        return get_store(), "a store that cannot be reached yet"  # the worker waits for it, and logs why
    except (StoreError, ImproperlyConfigured) as error:
        raise CommandError(str(error)) from error


def _draining(store: Store, config: WorkerConfig) -> WorkerConfig:
    """Limit the configuration to the jobs that wait now.  Raises CommandError if they cannot be determined."""
    if config.reload:
        raise CommandError("--drain ends and --reload starts again: use only one of them.")
    try:
        marks = waiting_now(store, config.queues)
    except StoreError as error:
        raise CommandError(f"The waiting jobs cannot be determined: {error}") from error
    return replace(config, drain=marks, queues=tuple(queue for queue in config.queues if queue.name in marks))


def _log_to_console() -> None:
    """In development, if LOGGING names no handler, log the end of each job, as Django logs each request."""
    logger = logging.getLogger("django_jobs")
    if host_settings().debug and not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("[%(asctime)s] %(message)s", "%d/%b/%Y %H:%M:%S"))
        logger.addHandler(handler)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)


def _choose(queues: Queues, wanted: list[str] | None, excluded: list[str]) -> ServedQueues:
    for name in [*(wanted or []), *excluded]:
        # A pattern may be wider or narrower than those of the settings.
        if name not in queues and not any(covers(name, each) or _overlap(name, each) for each in queues.written):
            known = ", ".join(queues.written)
            raise CommandError(f"There is no queue {name!r} in DJANGO_JOBS['QUEUES']. Known queues: {known}.")
    patterns = [name for name in wanted or queues.patterns if is_pattern(name)]
    names = [name for name in wanted or queues if not is_pattern(name)]
    names += [name for name in queues if name not in names and any(covers(each, name) for each in patterns)]
    chosen = [queues[name] for name in names if not any(covers(each, name) for each in excluded)]
    patterns = [each for each in patterns if not any(_is_within(each, other) for other in excluded)]
    if not (chosen or patterns):
        raise CommandError("No queue is left: --exclude-queues names all of them.")
    return ServedQueues(chosen, patterns if queues.patterns else (), excluded, queues.get)


def _overlap(one: str, other: str) -> bool:
    return is_pattern(one) and is_pattern(other) and (_is_within(one, other) or _is_within(other, one))


def _is_within(narrow: str, wide: str) -> bool:
    return is_pattern(wide) and narrow.startswith(wide[:-1])


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _some_names(text: str) -> list[str]:
    names = _names(text)
    if not names:  # an empty variable in a script must not mean all queues
        raise ArgumentTypeError("name at least one queue, or leave the option out for all queues")
    return names


def _name(text: str) -> str:
    if text and not re.fullmatch(r"[\w.:@+-]{1,100}", text):
        raise ArgumentTypeError(f"{text!r} is not a valid name: use up to 100 letters, digits and . : @ + - _")
    return text


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8001 or :8001 for all addresses")
    return host.strip("[]") or ("0.0.0.0" if colon else "127.0.0.1"), int(port)


def _try_address(address: tuple[str, int]) -> None:
    """Raise CommandError if the process for probes could not listen there, now that a person may read it."""
    try:
        socket.create_server(address, family=socket.AF_INET6 if ":" in address[0] else socket.AF_INET).close()
    except OSError as error:
        raise CommandError(f"--http: cannot listen at {address[0]}:{address[1]}: {error}") from error


def _whole(judge: Judge) -> Callable[[str], Any]:
    """The limits catch a slip, such as bytes for MiB, before it starts a hundred thousand threads."""

    def number(text: str) -> Any:
        value = int(text) if text.isdecimal() and len(text) < 20 else text
        if (remedy := judge(value)) is not None:
            raise ArgumentTypeError(f"{text!r} is not a whole number that can be used. {remedy}")
        return value

    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e7:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds
