"""`shared_task`, and `Celery`: an application whose decorator is `app.task`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, overload

from django.utils.module_loading import import_string

from django_jobs.compat.celery import canvas
from django_jobs.compat.celery.calls import ERRBACKS, limit_of, priority_of, seconds, takes_error
from django_jobs.compat.celery.conf import Conf, conf
from django_jobs.compat.celery.exceptions import ChordError, Reject, Unsupported
from django_jobs.compat.celery.missing import TASK_OPTIONS
from django_jobs.compat.celery.request import META, MOST_ATTEMPTS, Context
from django_jobs.compat.celery.results import AsyncResult
from django_jobs.compat.celery.signals import Signal
from django_jobs.compat.celery.task import Task, TaskDefinition
from django_jobs.core import registry
from django_jobs.core.context import current_job
from django_jobs.enqueueing.decorator import job
from django_jobs.exceptions import InvalidJob, JobFailed
from django_jobs.serialization import arguments
from django_jobs.workflows.engine import job_id_of

AnyTask = TypeVar("AnyTask", bound=Task)
#: Task, inside a class with an attribute of that name.
AnyTaskClass: TypeAlias = Task
#: Attributes of a class of tasks that are options.
OPTIONS = frozenset[str]().union(
    ("queue", "priority", "max_retries", "default_retry_delay", "autoretry_for", "dont_autoretry_for", "retry_kwargs"),
    ("retry_backoff", "retry_backoff_max", "retry_jitter", "acks_late", "reject_on_worker_lost", "ignore_result"),
    ("time_limit", "soft_time_limit", "expires", "throws", "typing", "track_started", "trail", "send_events"),
    ("compression", "store_errors_even_if_ignored", "serializer"),
)
#: Arguments of Celery(…) that would replace a part of Celery.
OF_CELERY = frozenset(
    {"loader", "amqp", "events", "log", "control", "tasks", "changes", "config_source", "fixups", "strict_typing"}
)


class Celery:
    """An application.  There is one set of tasks and of settings in a process, whatever application they came with."""

    #: all applications of this process.
    every: list[Celery] = []
    conf: Conf = conf

    def __init__(self, main: str | None = None, *, task_cls: type[Task] | str | None = None, **settings: Any) -> None:
        """`main` is a name for people.  `task_cls`: the class of its tasks, and of shared tasks that are defined later,
        or "module:Class".  `settings`: as in `conf.update`; `broker` and `backend` are read, not used."""
        if unfit := sorted(settings.keys() & OF_CELERY):
            raise Unsupported(f"Celery({unfit[0]}=…): remove it. Only settings, and task_cls, mean something here.")
        self.main, self.task_cls = main, task_cls
        self.on_after_configure, self.on_after_finalize = Signal(), Signal()
        self.control = Control()
        for name in ("set_as_current", "namespace", "autofinalize"):
            settings.pop(name, None)
        if broker := settings.pop("broker", None):
            conf.broker_url = broker
        if backend := settings.pop("backend", None):
            conf.result_backend = backend
        conf.update(settings)
        Celery.every.append(self)

    def __repr__(self) -> str:
        return f"<Celery {self.main}>"

    def config_from_object(self, obj: Any, namespace: str | None = None, **_: Any) -> None:
        """Accept Django's settings, which are always read with the prefix CELERY_.  Raises Unsupported for others."""
        if obj not in ("django.conf:settings", "django.conf.settings") or namespace != "CELERY":
            raise Unsupported(
                f"app.config_from_object({obj!r}, namespace={namespace!r}): settings are read from Django's. Write "
                "app.config_from_object('django.conf:settings', namespace='CELERY')."
            )

    def autodiscover_tasks(self, packages: Any = None, related_name: str = "tasks", **_: Any) -> None:
        """Do nothing: with django_jobs.compat.celery in INSTALLED_APPS, each app's tasks.py is imported.  Raises
        Unsupported for other modules."""
        if related_name != "tasks":
            raise Unsupported(
                f"app.autodiscover_tasks(related_name={related_name!r}): name the module in DJANGO_JOBS['MODULES']."
            )

    @overload
    def task(self, func: Callable[..., Any], /) -> AnyTaskClass: ...
    @overload
    def task(self, func: None = None, /, **options: Any) -> Callable[[Callable[..., Any]], AnyTaskClass]: ...
    def task(self, func: Any = None, /, **options: Any) -> Any:
        """Make a function a task: see `shared_task`."""
        if func is None:
            return lambda function: self.task(function, **options)
        return shared_task(func, **{**options, "base": options.get("base") or self.Task})

    @property
    def Task(self) -> Any:
        if isinstance(self.task_cls, str):
            self.task_cls = import_string(self.task_cls.replace(":", "."))
        return self.task_cls or Task

    @Task.setter
    def Task(self, value: type[Task]) -> None:
        self.task_cls = value

    def register_task(self, task: Any, **options: Any) -> AnyTaskClass:
        """Register an instance of a class of tasks, or the class."""
        return _register(task if isinstance(task, Task) else task(), {}, options)

    def send_task(self, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Enqueue a task by its name: see the function `send_task`."""
        return send_task(name, args, kwargs, **options)

    def signature(self, *args: Any, **options: Any) -> canvas.Signature:
        return canvas.signature(*args, **options)

    @property
    def tasks(self) -> Mapping[str, AnyTaskClass]:
        return {each.name: each.task for each in registry.all_definitions() if isinstance(each, TaskDefinition)}

    def add_periodic_task(
        self,
        schedule: Any,
        sig: canvas.Signature,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        **options: Any,
    ) -> str:
        """Add an entry to the schedule of beat.  Returns its name."""
        key = name or repr(sig)
        call = sig.clone(args, kwargs, **options)
        entry = {"task": sig.task, "schedule": schedule, "args": call.args, "kwargs": call.kwargs}
        conf.beat_schedule = {**(conf.beat_schedule or {}), key: {**entry, "options": call.options}}
        return key

    def finalize(self) -> None:
        """Send on_after_configure and on_after_finalize."""
        self.on_after_configure.send(self)
        self.on_after_finalize.send(self)

    def __getattr__(self, name: str) -> Any:
        if name == "AsyncResult":
            return AsyncResult
        raise AttributeError(f"Celery.{name} is not there: use the names of django_jobs.compat.celery.")


class Control:
    """`app.control`: revoke only."""

    def revoke(self, task_id: Any, terminate: bool = False, signal: Any = None, **_: Any) -> None:
        """Cancel tasks: see AsyncResult.revoke."""
        for each in [task_id] if isinstance(task_id, str) else task_id:
            AsyncResult(each).revoke(terminate=terminate)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"app.control.{name} is not there: use `manage.py jobs workers`, or the admin.")


def send_task(name: str, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
    """Enqueue a task by its name.  Raises NotRegistered if this process does not know it."""
    return canvas.task_of(name).apply_async(args, kwargs, **options)


@overload
def shared_task(func: Callable[..., Any], /) -> Task: ...
@overload
def shared_task(func: None = None, /, **options: Any) -> Callable[[Callable[..., Any]], Task]: ...
def shared_task(func: Any = None, /, **options: Any) -> Any:
    """Make a function a task, as `@shared_task` or `@shared_task(**options)`.

    `name`, `bind` (the task is the first argument), `base` (a class of tasks), and the attributes of Task.
    Raises Unsupported or InvalidJob at import of the module; the error says what to write."""
    if func is None:
        return lambda function: _define(function, dict(options))
    return _define(func, dict(options))


def _define(func: Any, options: dict[str, Any]) -> Task:
    if isinstance(func, type) and issubclass(func, Task):
        return _register(func(), {}, options)
    owner = f"{getattr(func, '__module__', '?')}.{getattr(func, '__qualname__', func)}"
    if not inspect.isfunction(func) and not hasattr(func, "__wrapped__"):
        raise InvalidJob(f"@shared_task on {func!r}: use it on a function.")
    if inspect.iscoroutinefunction(func):
        raise Unsupported(f"{owner} is an async function, which Celery does not run. Use @job of django_jobs.")
    if inspect.isgeneratorfunction(func):
        raise InvalidJob(f"{owner} is a generator: calling it runs nothing. Use a plain function without yield.")
    base, is_bound = options.pop("base", None) or _common_base(), options.pop("bind", False)
    run = func if is_bound else staticmethod(func)
    named = {name: getattr(func, name) for name in ("__doc__", "__module__", "__name__")}
    kind: type[Task] = type(func.__name__, (base,), {"run": run, "__wrapped__": run, **named})
    name = options.pop("name", None) or base.name or f"{func.__module__}.{func.__name__}"
    return _register(kind(), {"name": name}, options)


def _common_base() -> Any:
    """Return the class of the last application that has one of its own."""
    return next((each.Task for each in reversed(Celery.every) if each.task_cls is not None), Task)


def _register(task: AnyTask, naming: Mapping[str, str], options: dict[str, Any]) -> AnyTask:
    """Set the options of a task, and make the job behind it."""
    kind = type(task)
    task.name = naming.get("name") or options.pop("name", None) or task.name or f"{kind.__module__}.{kind.__name__}"
    for option in ("shared", "lazy", "track_started"):
        options.pop(option, None)
    given = {name: getattr(task, name) for name in TASK_OPTIONS if getattr(kind, name, None) is not None} | options
    for option, value in given.items():
        if option in TASK_OPTIONS and value is not None:
            raise Unsupported(f"{task.name}: {option}={value!r}: {TASK_OPTIONS[option]}")
        if option not in OPTIONS and option not in TASK_OPTIONS:
            known = ", ".join(("name", "bind", "base", *sorted(OPTIONS)))
            raise Unsupported(
                f"{task.name} has no option {option!r}. The options are: {known}. An attribute of your own "
                "belongs into a class of tasks, passed as base=…."
            )
        if option in OPTIONS:
            setattr(task, option, value)
    if task.serializer not in (None, "json"):
        raise Unsupported(f"{task.name}: serializer={task.serializer!r}: jobs are JSON. Remove it, and pass ids.")
    for option in ("time_limit", "soft_time_limit", "acks_late", "reject_on_worker_lost", "ignore_result"):
        if getattr(task, option) is None:
            setattr(task, option, getattr(conf, f"task_{option}"))
    task.definition = TaskDefinition(task, **_job_options(task))
    registry.register(task.definition)
    return task


def _job_options(task: Task) -> dict[str, Any]:
    """Return the options of `@job` that keep Celery's promises."""
    own = {"queue": getattr(task.queue, "name", task.queue)} if task.queue else {}
    if task.priority is not None:
        own["priority"] = priority_of(task.name, task.priority)
    if after := seconds(task.expires):
        own["expires_in"] = after
    return {
        **own,
        "max_attempts": MOST_ATTEMPTS,
        "retry_on": (),
        "delivery": "at_least_once" if task.acks_late or task.reject_on_worker_lost else "once_unless_failed",
        "timeout": limit_of(task.name, task.time_limit, task.soft_time_limit),
        "keep_result": 0 if task.ignore_result else conf.keeps_results,
    }


@shared_task(name="celery.starmap")
def starmap(name: str, calls: list[list[Any]]) -> list[Any]:
    """Run a task once for each list of arguments, and return the list of what it returned."""
    task = canvas.task_of(name)
    return [task(*each) for each in calls]


@job(name=ERRBACKS)
def errbacks(end: dict[str, Any]) -> None:
    """Enqueue the error callbacks of a dead task.  The id of each follows from this job's: it is one job."""
    this = current_job()
    if this is None or isinstance(AsyncResult(end["id"]).result, Reject):
        return
    (stored,), _ = arguments.load(end["meta"][META]["errbacks"].encode())
    for number, (step, name, args, kwargs, options, immutable) in enumerate(stored):
        errback = canvas.Signature(name, args, kwargs, options, immutable)
        if step is None:
            failed, id = {key: end[key] for key in ("id", "name", "args", "kwargs", "error")}, this.id
        else:  # of the body of a chord: it is told once, whichever tasks of the header fail
            failed = {"id": job_id_of(end["id"].rpartition(".")[0], str(step)), "error": None}
            id = f"{failed['id']}.header"
        if takes_error(errback):
            errback_with_error.using(job_id=f"{id}.{number}").enqueue(failed, name, args, kwargs, immutable)
        else:
            errback.clone((failed["id"],)).apply_async(task_id=f"{id}.{number}")


@job(name="celery.errback", max_attempts=1)
def errback_with_error(failed: dict[str, Any], name: str, args: Any, kwargs: Any, immutable: bool) -> None:
    """Call an error callback with (request, error, traceback), as Celery does: no hook and no signal tells of it."""
    result = AsyncResult(failed["id"])
    error = result.result
    if failed["error"] is None:
        error = ChordError("A task of the chord's header has failed.")
    elif not isinstance(error, Exception):  # the task has left the store
        error = JobFailed(failed["error"])
    context = Context(
        id=failed["id"], task=failed.get("name"), args=failed.get("args") or (), kwargs=failed.get("kwargs") or {},
        called_directly=False,
    )  # fmt: skip
    canvas.Signature(name, args, kwargs, immutable=immutable)(context, error, result.traceback)
