"""JobsBackend: `@task` functions use the same queues, workers and admin pages as `@job` functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any, cast

from django.core import checks
from django.utils import timezone

from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.discovery import runs_as_jobs
from django_jobs.enqueueing.call_options import moment
from django_jobs.enqueueing.handle import find_accepted
from django_jobs.enqueueing.request import NO_KEY, request_for
from django_jobs.enqueueing.submit import submit
from django_jobs.tasks_backend.compat import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
)
from django_jobs.tasks_backend.results import meta_of, result_of
from django_jobs.tasks_backend.running import wrap
from django_jobs.tasks_backend.task import OPTION_NAMES, JobTask, TaskDefinition, options_of, unchecked, wire_name
from django_jobs.tasks_backend.telling import tell

#: The allowed keys of OPTIONS.
OPTIONS = {"ENQUEUE_ON_COMMIT", "JOB_OPTIONS"}


class JobsBackend(BaseTaskBackend):
    """Runs tasks as jobs.

    OPTIONS: `ENQUEUE_ON_COMMIT` (by default True with OUTBOX, else False: Django's contract is to enqueue at once) and
    `JOB_OPTIONS` (a dict of `@job` options for every task, for example {"max_attempts": 5}).
    """

    task_class = JobTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    #: Workers look for the tasks of backends with this attribute, including subclasses.
    runs_as_jobs = True

    @property
    def job_options(self) -> Mapping[str, Any]:
        options = self.options.get("JOB_OPTIONS") or {}
        return {name: value for name, value in options.items() if name in OPTION_NAMES}

    def validate_task(self, task: Task[Any, Any]) -> None:
        """Apply Django's own rules; a task that passes is registered for workers.

        Django calls this for every new Task, so importing the modules of tasks fills the registry, as with `@job`.
        """
        super().validate_task(task)
        if not registry.knows(wire_name(task)):
            registry.register(self.definition(task))

    def definition(self, task: Task[Any, Any]) -> TaskDefinition:
        """Return the job definition of this task, with this backend's options."""
        return TaskDefinition(task, wrap(task), options_of(task, self.job_options), wire_name(task), tell)

    def _definition_of(self, task: Task[Any, Any]) -> TaskDefinition:
        """Return the registered definition, which workers have, unless this call has options of its own."""
        name, asked = wire_name(task), options_of(task, self.job_options)
        known = registry.get(name) if registry.knows(name) else None
        if isinstance(known, TaskDefinition) and known.asked == asked and known.task.func is task.func:
            return known
        return self.definition(task)

    def enqueue(
        self,
        task: Task[Any, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> TaskResult[Any, Any]:
        """Enqueue the task now or, with ENQUEUE_ON_COMMIT or OUTBOX, when the transaction commits."""
        self.validate_task(task)
        enqueued_at = timezone.now().astimezone(UTC)
        definition = self._definition_of(task)
        args, kwargs = definition.as_sent(args, kwargs)
        request = request_for(definition, args, kwargs)
        request.queue, request.priority = task.queue_name, task.priority
        request.unique_key = NO_KEY
        request.meta = meta_of(task, enqueued_at)
        request.on_commit = bool(self.options.get("ENQUEUE_ON_COMMIT", get_settings().outbox))
        if task.run_after is not None:
            aware = task.run_after if timezone.is_aware(task.run_after) else timezone.make_aware(task.run_after)
            request.run_at = moment(aware, "run_after")
        handle = submit(request)
        result: TaskResult[Any, Any] = TaskResult(
            task=task,
            id=handle.id,
            status=TaskResultStatus.READY,
            enqueued_at=enqueued_at,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        task_enqueued.send(sender=type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult[Any, Any]:
        """Return the current result; it is READY in the outbox.  Raises TaskResultDoesNotExist, also if the task has
        left the history.
        """
        info = find_accepted(result_id)
        if info is None:
            raise TaskResultDoesNotExist(result_id)
        return result_of(info)

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """Called by Django's system checks for every backend in TASKS."""
        found: list[checks.CheckMessage] = [*super().check(**kwargs)]
        where = f"TASKS[{self.alias!r}]"
        for name in sorted(set(self.options) - OPTIONS):
            hint = f"Known options: {', '.join(sorted(OPTIONS))}."
            found.append(checks.Error(f"{where}['OPTIONS'] has an unknown key {name!r}.", hint, id="django_jobs.E080"))
        for name in sorted(set(self.options.get("JOB_OPTIONS") or {}) - set(OPTION_NAMES)):
            hint = f"Known options: {', '.join(sorted(OPTION_NAMES))}."
            found.append(
                checks.Error(f"{where}: JOB_OPTIONS has an unknown key {name!r}.", hint, id="django_jobs.E081")
            )
        known = get_settings().queues
        for name in sorted(name for name in self.queues if name not in known):
            hint = "Add it to DJANGO_JOBS['QUEUES'], or remove it from TASKS."
            found.append(
                checks.Error(
                    f"{where}['QUEUES'] names {name!r}, which is not in DJANGO_JOBS['QUEUES'].",
                    hint,
                    id="django_jobs.E082",
                )
            )
        return found


# -- tasks that are enqueued with `using(backend=…)` -----------------------------------


def _ours(alias: str) -> JobsBackend | None:
    """Return the backend with that alias; None if TASKS has none, or it runs tasks elsewhere."""
    path = str(task_backends.settings.get(alias, {}).get("BACKEND", ""))
    return cast("JobsBackend", task_backends[alias]) if runs_as_jobs(path) else None


def _other_alias(name: str) -> TaskDefinition | None:
    """Return the definition of "path:alias" in a process that has not called `using(backend=…)`, such as a worker.

    It is not validated: the other backend may refuse the queue of the task's own, which is of no interest here."""
    path, separator, alias = name.rpartition(":")
    first = registry.get(path) if separator and registry.knows(path) else None
    backend = _ours(alias)
    if not isinstance(first, TaskDefinition) or backend is None:
        return None
    if first.task.backend == alias:
        return first  # the task had another backend of its own when the job was enqueued
    definition = backend.definition(unchecked(first.task, backend=alias))
    registry.register(definition)
    return definition


def _other_aliases() -> frozenset[str]:
    """Return the names that `_other_alias` knows.  Workers with other backends know other names, and a claim has the
    limits of all of them before the first of their jobs comes."""
    aliases = [alias for alias in task_backends if _ours(alias) is not None]
    tasks = [each for each in registry.all_definitions() if isinstance(each, TaskDefinition)]
    paths = {each.task.module_path for each in tasks}
    return frozenset(f"{path}:{alias}" for path in paths for alias in aliases)


registry.add_resolver(_other_alias, _other_aliases)
