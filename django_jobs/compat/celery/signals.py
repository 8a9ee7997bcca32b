"""Celery's signals.  Those about a task are sent on the thread that runs it, those about a process by that process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.dispatch import Signal as DjangoSignal

from django_jobs import signals
from django_jobs.compat.celery.missing import SIGNALS, refuse

__all__ = [
    "after_task_publish", "before_task_publish", "task_failure", "task_postrun", "task_prerun", "task_retry",
    "task_revoked", "task_success", "worker_process_init", "worker_process_shutdown",
]  # fmt: skip


class Signal(DjangoSignal):
    """A signal whose `connect` is a decorator, too: `@task_prerun.connect` and `@task_prerun.connect(sender=task)`."""

    def __init__(self, *sources: tuple[DjangoSignal, Callable[..., None]]) -> None:
        """`sources`: the signals of django_jobs from which this one follows.  They cost nothing without a receiver."""
        super().__init__()
        self._sources = sources

    def connect(self, *args: Any, **options: Any) -> Any:
        """Connect a receiver: see Django's Signal.connect.  Without one, return a decorator."""
        if not args and "receiver" not in options:
            return lambda receiver: self.connect(receiver, **options)
        options.setdefault("weak", False)  # Celery keeps a function of a module, and Django might drop a nested one
        super().connect(*args, **options)
        for source, pass_on in self._sources:
            source.connect(pass_on, weak=False, dispatch_uid=f"django_jobs.compat.celery.{pass_on.__name__}")
        return args[0] if args else options["receiver"]


def _revoked(sender: Any, job_id: str, error: Any = None, **_: Any) -> None:
    task_revoked.send_robust(
        getattr(sender, "task", sender), request=_Revoked(job_id), terminated=False, signum=None, expired=False
    )


def _expired(sender: Any, job_id: str, **_: Any) -> None:
    task_revoked.send_robust(
        getattr(sender, "task", sender), request=_Revoked(job_id), terminated=False, signum=None, expired=True
    )


def _process_started(sender: Any, **_: Any) -> None:
    worker_process_init.send_robust(sender)


def _process_stops(sender: Any, **_: Any) -> None:
    worker_process_shutdown.send_robust(sender)


class _Revoked:
    """What task_revoked has as `request`: the job may have ended in a process that never knew its arguments."""

    def __init__(self, id: str) -> None:
        self.id = self.task_id = id


before_task_publish = Signal()
after_task_publish = Signal()
task_prerun = Signal()
task_postrun = Signal()
task_success = Signal()
task_failure = Signal()
task_retry = Signal()
task_revoked = Signal((signals.job_cancelled, _revoked), (signals.job_expired, _expired))
worker_process_init = Signal((signals.child_started, _process_started))
worker_process_shutdown = Signal((signals.child_stopping, _process_stops))


def __getattr__(name: str) -> Any:
    return refuse(__name__, name, SIGNALS)
