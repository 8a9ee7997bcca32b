"""The maintenance tasks that this project's settings ask for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseFault

from django_jobs import browse, remote
from django_jobs.conf import get_settings
from django_jobs.conf.release import release
from django_jobs.execution.remote_reports import RemoteWatch
from django_jobs.formatting import migrate_hint
from django_jobs.models import audit
from django_jobs.operations import bulk, releases, searching
from django_jobs.runtime.complaints import Complaints
from django_jobs.runtime.refusals import Refusals
from django_jobs.schedules.scheduler import Periodic
from django_jobs.stores.redis import Store
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.maintenance.eviction import EvictionWatch
from django_jobs.worker.maintenance.tasks import ExtraTask
from django_jobs.workflows import end_calls, engine

logger = logging.getLogger("django_jobs.worker")

#: Seconds until a task runs again after it found nothing to do.
ARCHIVE, REMOTE, BULK, SEARCH, SNAPSHOT, EVICTION, WORKFLOWS = 4.0, 4.0, 5.0, 3.0, 5.0, 45.0, 3.0
IDENTITIES, OUTBOX, NOTIFY, RELEASE = 60.0, 1.0, 5.0, 60.0
#: Workflows that are checked at a time, and ms until another worker is told of them.
_CHECKED, _AGAIN = 20, 30_000
#: Seconds until a task runs again after it found something to do: a short pause for everything else.
SOON = 0.05

bulk.ended.add(audit.write_end)


class RepeatedTask:
    """A task that is repeated: `work()` returns how much it did, `pause` is in seconds."""

    def __init__(self, work: Callable[[], int], pause: float, leave: Callable[[], None] | None = None) -> None:
        """`leave` is called when the worker has stopped, in its parent."""
        self.work, self.pause, self._leave = work, pause, leave

    def tick(self) -> float:
        """Work once.  Returns the seconds until the next time."""
        return SOON if self.work() else self.pause

    def leave(self) -> None:
        """Give back what the task holds.  Raises StoreError."""
        if self._leave is not None:
            self._leave()


def tasks_for(store: Store, config: WorkerConfig) -> list[ExtraTask]:
    """Return the tasks that this project's settings ask for.

    What only some projects use is imported for those: every process of a worker would carry it."""
    settings = get_settings()

    def queues() -> set[str]:
        """Return those of this worker, as there are now, and all others that have jobs, also queues that no worker
        serves, or that have left the settings: people end jobs there, jobs may be on their way from there to other
        queues, and the last ones that ran there are not archived yet."""
        return {*config.queue_names, *store.queues()}

    wanted: list[ExtraTask] = [RepeatedTask(read_remote_types, remote.REFRESH)] if settings.api is not None else []
    wanted += [Periodic()] if config.periodic else []
    wanted += [
        RepeatedTask(bulk_batch, BULK),
        RepeatedTask(search_batch, SEARCH),
        RepeatedTask(snapshot, SNAPSHOT),
        RepeatedTask(lambda: workflows(store, list(queues())), WORKFLOWS),
        RepeatedTask(store.forget_identities, IDENTITIES),
        RepeatedTask(EvictionWatch(store).tick, EVICTION),
        RepeatedTask(releases.noting(release()), RELEASE),
    ]
    if settings.notify:
        from django_jobs.operations.diagnosis.notifying import notify

        wanted.append(RepeatedTask(notify, NOTIFY))
    if settings.outbox:
        wanted.append(RepeatedTask(send_kept(), OUTBOX))
    if settings.archive is not None:
        from django_jobs.worker.maintenance.archiver import Archiver

        archiver = Archiver(store, queues, config.lease)
        wanted.append(RepeatedTask(archiver.tick, ARCHIVE, archiver.leave))
    if settings.api is not None:
        watch = RemoteWatch(store, queues)
        wanted.append(RepeatedTask(watch.tick, REMOTE))
    return wanted


def send_kept() -> Callable[[], int]:
    """Return what sends the entries that were left in the outbox.  It returns how many are done, and raises StoreError.

    A database that cannot be reached delays only the outbox."""
    from django_jobs.operations.relay import relay
    from django_jobs.outbox.vacuum import Vacuum

    vacuum, complaints = Vacuum(), Complaints()

    def work() -> int:
        try:
            done = relay()
            vacuum.tick(get_settings().database)
            complaints.is_over()
            return done
        except (DatabaseFault, ImproperlyConfigured) as error:
            if complaints.is_new(error):
                logger.warning("The outbox cannot be read now; its entries wait: %s%s", error, migrate_hint(error))
            return 0

    return work


def read_remote_types() -> int:
    """Read the remote job types, for all processes of this worker.  Returns 0: no work is left."""
    remote.read()
    return 0


def workflows(store: Store, queues: Sequence[str]) -> int:
    """Do what follows from the ends of jobs and was not done by the process that ended them; check workflows.

    What the store refuses in one queue is raised after the checks: these also delete old workflows, which a store
    without memory needs most."""
    read, refusals = 0, Refusals()
    for queue in store.unread(queues):
        with refusals.put_off():
            read += engine.advance(store, queue) + end_calls.follow_at_leisure(store, queue)
    due = store.workflows_due(_CHECKED, _AGAIN)
    engine.check_all(store, due, store.options.history_ttl)
    refusals.raise_last()
    return read + len(due)


def bulk_batch() -> int:
    """Do one batch of the bulk operations that operators asked for.  Returns 1 while there is more."""
    return int(bulk.tick(0.0))


def search_batch() -> int:
    """Go on with the searches that pages have begun.  Returns 1 while there is more."""
    return int(searching.tick())


def snapshot() -> int:
    """Publish the numbers for the admin's pages, where there are too many queues to ask each.  Returns 0: no work is
    left."""
    browse.publish_snapshot()
    return 0
