"""What a worker does for the fleet besides running jobs, as far as the settings ask for it."""

from __future__ import annotations

from collections.abc import Callable

from django_jobs import browse, remote
from django_jobs.conf import get_settings
from django_jobs.execution.remote_reports import RemoteWatch
from django_jobs.operations import bulk
from django_jobs.remote import pull_queues
from django_jobs.schedules.scheduler import Periodic
from django_jobs.stores.contract.store import Store
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.maintenance.archiver import Archiver
from django_jobs.worker.maintenance.eviction import EvictionWatch
from django_jobs.worker.maintenance.tasks import Task

#: Seconds between two looks that found nothing.
ARCHIVE, REMOTE, BULK, SNAPSHOT, EVICTION = 5.0, 10.0, 5.0, 5.0, 45.0
#: Seconds until the next look after one that found something: the parent's other work comes in between.
SOON = 0.05


class RepeatedTask:
    """Something to be done again and again: `work()` returns how much it did."""

    def __init__(self, work: Callable[[], int], pause: float) -> None:
        self.work, self.pause = work, pause

    def tick(self) -> float:
        """Work once.  Returns the seconds until the next time."""
        return SOON if self.work() else self.pause


def tasks_for(store: Store, config: WorkerConfig) -> list[Task]:
    """The tasks that this project's settings ask for."""
    settings = get_settings()
    wanted: list[Task] = [RepeatedTask(read_remote_types, remote.REFRESH)] if settings.api is not None else []
    wanted += [Periodic()] if config.periodic else []
    wanted += [
        RepeatedTask(bulk_batch, BULK),
        RepeatedTask(snapshot, SNAPSHOT),
        RepeatedTask(EvictionWatch(store).tick, EVICTION),
    ]
    if settings.archive is not None:
        wanted.append(RepeatedTask(Archiver(store, lambda: {*config.queue_names, *pull_queues()}).tick, ARCHIVE))
    if settings.api is not None:
        watch = RemoteWatch(store, lambda: {*config.queue_names, *pull_queues()})
        wanted.append(RepeatedTask(watch.tick, REMOTE))
    return wanted


def read_remote_types() -> int:
    """Read the rows, for all processes of this worker.  Nothing is ever left to do."""
    remote.read()
    return 0


def bulk_batch() -> int:
    """One batch of what operators asked for; 1 while there is more."""
    return int(bulk.tick(0.0))


def snapshot() -> int:
    """The numbers for the admin's pages, where there are too many queues to ask each.  Nothing is ever left to do."""
    browse.publish_snapshot()
    return 0
