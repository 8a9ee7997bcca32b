"""A task of Django's framework with the options of `@job`, and its job definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.options.checks import merged
from django_jobs.core.options.declared import OPTIONS, check_options
from django_jobs.exceptions import InvalidJob
from django_jobs.tasks_backend.compat import Task
from django_jobs.tasks_backend.plain import as_json_makes_it

#: Option → "call", or "type" if workers take it from the task's definition: those are not stored with a call.
OPTION_NAMES = {name: option.task for name, option in OPTIONS.items() if option.task}
_WRITE_IT = "Write it in @task(…) (Django 6.1 or django-tasks), or in OPTIONS['JOB_OPTIONS'] of a backend."


def _with_options(task_class: type[JobTask]) -> type[JobTask]:
    """Give a dataclass that is about to be made a field for each option: None, if it is not given."""
    task_class.__annotations__ = dict.fromkeys(OPTION_NAMES, Any)
    for name in OPTION_NAMES:
        setattr(task_class, name, None)
    return task_class


@dataclass(frozen=True, slots=True, kw_only=True)
@_with_options
class JobTask(Task):  # type: ignore[type-arg]
    """A Task that can have the options of `@job`: in `@task(…)` from Django 6.1 on, in `.using(…)` with every version.

    None means the backend's OPTIONS["JOB_OPTIONS"], else the default of `@job`; but `max_attempts` is then 1, because
    Django's contract has no retries.
    """

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | timedelta | None = None,
        backend: str | None = None,
        **options: Any,
    ) -> JobTask:
        """Return a copy with other defaults.  `run_after` may also be a timedelta from now, as Django documents.

        `tags` are added to those that the task has.  Other options of `@job` are stored with each call, except those
        which workers look up by the task's name.  Raises InvalidJob for these, for unknown options, and for
        invalid values."""
        owner = f"{self.module_path}.using()"
        check_options(options, owner, frozenset(OPTION_NAMES))
        if lasting := sorted(name for name in options if OPTION_NAMES[name] == "type"):
            raise InvalidJob(f"{owner}: {lasting[0]} applies to every call of a task. {_WRITE_IT}")
        if "keep_result" in options and not (options["keep_result"] and self._keeps_results()):
            raise InvalidJob(f"{owner}: keep_result=0 applies to every call of a task, or to none. {_WRITE_IT}")
        if "tags" in options:
            own = getattr(self, "tags", None)
            before = own if own is not None else self._defaults().get("tags", ())
            try:
                options["tags"] = merged(before, options["tags"])
            except ValueError as error:
                raise InvalidJob(f"{owner}: tags={options['tags']!r}: {error}") from error
        if isinstance(run_after, timedelta):
            run_after = timezone.now() + run_after
        # super() without arguments does not work in a dataclass with slots.
        changed: Any = Task.using(self, priority=priority, queue_name=queue_name, run_after=run_after, backend=backend)
        return replace(changed, **options) if options else changed  # type: ignore[no-any-return]

    @property
    def definition(self) -> JobDefinition:
        """The job definition that workers have for this task."""
        return registry.get(wire_name(self))

    def _keeps_results(self) -> bool:
        return bool(options_of(self, self._defaults()).get("keep_result", True))

    def _defaults(self) -> Mapping[str, Any]:
        defaults: Mapping[str, Any] = getattr(self.get_backend(), "job_options", {})
        return defaults


class TaskDefinition(JobDefinition):
    """The job definition behind a task: its function does what Django expects round the task's own."""

    told_of = frozenset({"job_started", "job_succeeded", "job_dead", "job_cancelled", "job_expired"})
    keeps_worker = True

    def __init__(
        self,
        task: Task[Any, Any],
        func: Callable[..., Any],
        options: Mapping[str, Any],
        name: str,
        told: Callable[[TaskDefinition, Any], None],
    ) -> None:
        """`told(definition, signal_event)` sends Django's signal for one of ours."""
        super().__init__(func, name=name, **options)
        self.task, self._told = task, told
        #: the options as given, before they were checked.
        self.asked = dict(options)

    def as_sent(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return plain JSON, as Django's own backends do.  Raises TypeError or ValueError for what JSON has not."""
        return as_json_makes_it(list(args)), as_json_makes_it(_text_keys(dict(kwargs)))

    def tell(self, signal_event: Any) -> None:
        """Send Django's own signal, too."""
        self._told(self, signal_event)


def _text_keys(kwargs: Any) -> Any:
    """Return the keyword arguments.  Raises InvalidJob unless all names are text."""
    wrong = [key for key in kwargs if not isinstance(key, str)]
    if wrong:
        raise InvalidJob(f"Keyword argument {wrong[0]!r} is not text.")
    return kwargs


def wire_name(task: Task[Any, Any]) -> str:
    """Return the job's name: the task's path, plus the alias if it is not the one that the task was defined with,
    because the other backend has other options."""
    if not registry.knows(task.module_path):
        return task.module_path
    first = registry.get(task.module_path)
    if isinstance(first, TaskDefinition) and first.task.backend != task.backend:
        return f"{task.module_path}:{task.backend}"
    return task.module_path


def unchecked(task: Task[Any, Any], **changes: Any) -> Task[Any, Any]:
    """Return a copy with other fields, which no backend validates.

    What may be enqueued now says nothing about a job that is stored: since it was enqueued, TASKS may have lost its
    queue, or a retry may have moved it to a queue that TASKS never had."""
    made: Task[Any, Any] = object.__new__(type(task))
    for field in fields(task):
        # As `dataclasses.replace` for a frozen class, without `__post_init__`, which validates.
        object.__setattr__(made, field.name, changes.get(field.name, getattr(task, field.name)))
    return made


def options_of(task: Task[Any, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `@job` for this task."""
    own = {name: value for name in OPTION_NAMES if (value := getattr(task, name, None)) is not None}
    given = {"max_attempts": 1, **defaults, **own, "queue": task.queue_name, "priority": task.priority}
    if given.get("delivery") == "at_most_once":
        del given["max_attempts"]
    return given
