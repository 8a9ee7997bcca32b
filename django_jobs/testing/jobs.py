"""`jobs`: the object that a test uses for everything about jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any
from unittest.mock import patch

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.test import override_settings

from django_jobs.conf import get_settings, raw_setting
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import State
from django_jobs.enqueueing import request, submit
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.formatting import call_text, counted
from django_jobs.stores import store_options, use_store
from django_jobs.stores.in_tests import TestStore
from django_jobs.stores.values.options import StoreOptions
from django_jobs.testing.commits import in_transaction_of_the_code, run_commit_callbacks
from django_jobs.testing.running import AnyJob, JobRun, definition_of
from django_jobs.testing.seen import EnqueuedJob, same_call, seen
from django_jobs.workflows.batch import Batch
from django_jobs.workflows.handle import WorkflowHandle

_SOONEST_FIRST = [State.QUEUED, State.BLOCKED, State.RETRY, State.SCHEDULED]
_ENDED = [State.RUNNING, State.SUCCEEDED, State.DEAD, State.CANCELLED, State.EXPIRED]
#: Jobs that a failed assertion names.
_MOST_SHOWN = 50
#: `at` is compared with a time that was computed as now plus a delay, a moment ago.
_TOLERANCE = timedelta(seconds=1)
#: Jobs per page of the store; tests have fewer.
_MANY = 10_000


class Jobs(JobRun):
    """The jobs of one test, in memory: inspect them, run them, let time pass.

    Use it as a context manager, as JobsTestMixin and the pytest fixture `jobs` do.  Inside TestCase (or pytest-django's
    `db`), the transaction around the whole test does not count: jobs that the code enqueues in its own atomic() are
    added when that ends, or never if it is rolled back; others are added at once.
    """

    def __init__(self, beginning: Jobs | TestStore | None = None) -> None:
        """`beginning`: begin with a copy of these jobs (and at their time).  Default: no jobs."""
        super().__init__()
        self._stack, self._beginning = ExitStack(), beginning

    def __enter__(self) -> Jobs:
        self.store = TestStore(self._options())
        if isinstance(self._beginning, Jobs):
            self.store.copy(self._beginning.store)
            self._ahead_ms = self._beginning._ahead_ms
        elif self._beginning is not None:
            self.store.copy(self._beginning)
        before = use_store(self.store)
        # Only another kit's store is put back: settings may have changed what else was in use.
        self._stack.callback(use_store, before if isinstance(before, TestStore) else None)
        self._stack.enter_context(patch.object(submit, "in_transaction", in_transaction_of_the_code))
        self._stack.enter_context(patch.object(request, "now_ms", self.now_ms))
        # A change of settings discards the store; this one must stay for the whole test.
        setting_changed.connect(self._stay)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        setting_changed.disconnect(self._stay)
        self._stack.close()
        self.store.really_close()

    def _stay(self, *, setting: str, **_: Any) -> None:
        with suppress(ImproperlyConfigured):  # a test may write settings that cannot be read
            self.store.options = replace(self._options(), namespace=self.store.options.namespace)
        use_store(self.store)

    def _options(self) -> StoreOptions:
        return replace(store_options(get_settings()), clock=self.now_ms)

    # -- looking -----------------------------------------------------------------

    def enqueued(self, *, name: str | AnyJob | None = None, queue: str | None = None) -> list[EnqueuedJob]:
        """Return the waiting jobs (queued, blocked, retry, scheduled, in this order), of one job or queue if named."""
        run_commit_callbacks(get_settings().database)
        wanted = name if isinstance(name, str) or name is None else definition_of(name).name
        found = self._in_states(_SOONEST_FIRST, self._queues() if queue is None else [queue])
        return [job for job in found if wanted in (None, job.name)]

    def assert_enqueued(
        self,
        task: AnyJob | str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        at: datetime | None = None,
        count: int | None = None,
    ) -> JobHandle:
        """Assert that the job is waiting, and return a handle for it (for the first, if several do).

        `args` and `kwargs` match equal calls, however the arguments were passed; leave both out for any call.  `at` may
        differ by a second.  `count` is the exact number of such jobs; None = at least one.
        """
        definition = registry.get(task) if isinstance(task, str) else definition_of(task)
        found = [
            job
            for job in self.enqueued(name=definition)
            if ((args is None and kwargs is None) or same_call(definition, job, args or (), kwargs or {}))
            and queue in (None, job.queue)
            and (at is None or (job.at is not None and abs(job.at - at) <= _TOLERANCE))
        ]
        if not found or count not in (None, len(found)):
            raise AssertionError(self._explain(definition, args, kwargs, queue, at, count, len(found)))
        return found[0].handle

    def assert_not_enqueued(self, task: AnyJob | str | None = None) -> None:
        """Assert that no such job is waiting; without `task`, no job at all."""
        found = self.enqueued(name=task)
        if found:
            raise AssertionError("Expected no jobs, but there are:\n" + _lines(found))

    def assert_workflow(self, handle: WorkflowHandle | Batch, state: str, **counts: int) -> None:
        """Assert that a workflow or batch is in this state, and that so many of its steps are in these states, as in
        `assert_workflow(handle, "stopped", succeeded=2, dead=1)`."""
        run_commit_callbacks(get_settings().database)
        workflow = handle.handle if isinstance(handle, Batch) else handle
        found = workflow.counts
        if workflow.state != state or any(found[name] != number for name, number in counts.items()):
            steps = "\n".join(f"  {step.name or step.job or step.job_id}: {step.state}" for step in workflow.steps)
            expected = ", ".join([state, *(f"{name}={number}" for name, number in counts.items())])
            raise AssertionError(f"Expected {expected}; {workflow!r} is {workflow.state}:\n{steps}")

    @contextmanager
    def eager(self) -> Iterator[None]:
        """Run jobs where they are enqueued (EAGER), inside this context."""
        with override_settings(DJANGO_JOBS={**raw_setting(), "EAGER": True}):
            yield

    def _explain(
        self,
        definition: JobDefinition,
        args: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
        queue: str | None,
        at: datetime | None,
        count: int | None,
        found: int,
    ) -> str:
        any_call = args is None and kwargs is None
        call = f"{definition.name}(…)" if any_call else call_text(definition.name, args or (), kwargs or {})
        expected = call + (f" in {queue!r}" if queue else "") + (f" at {at.isoformat()}" if at else "")
        number = "at least once" if count is None else counted(count, "time")
        waiting, ended = self.enqueued(), self._in_states(_ENDED, self._queues())
        there = "Waiting jobs:\n" + _lines(waiting) if waiting else "No job is waiting."
        if ended:
            there += "\nNo longer waiting:\n" + _lines(ended)
        return f"Expected {number}, found {counted(found, 'time')}: {expected}\n{there}"

    def _in_states(self, states: Sequence[State], queues: Iterable[str]) -> list[EnqueuedJob]:
        return [
            seen(info) for queue in queues for state in states for info in self.store.page(queue, state, limit=_MANY)
        ]


def _lines(jobs: Sequence[EnqueuedJob]) -> str:
    lines = [f"  {job}" for job in jobs[:_MOST_SHOWN]]
    if len(jobs) > _MOST_SHOWN:
        lines.append(f"  and {len(jobs) - _MOST_SHOWN} more")
    return "\n".join(lines)
