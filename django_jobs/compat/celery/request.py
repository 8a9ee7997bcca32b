"""`self.request`: what a task knows of the call that runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from django_jobs.core.context import RunningJob

#: The key of a job's `meta` under which a call of this layer keeps what `self.request` shows.
META = "celery"
#: `max_attempts` of all tasks: `max_retries` counts, not this.
MOST_ATTEMPTS = 1_000_000
REMEDIES = {
    "children": "Children of a task are not recorded. Use a Batch.",
    **dict.fromkeys(("chain", "chord", "callbacks", "errbacks"), "A task does not see what comes after it."),
    "group": "Use current_job().workflow.",
    **dict.fromkeys(("root_id", "parent_id"), "Use current_job().workflow, or send it in headers."),
    "correlation_id": "Use id.",
    "reply_to": "Use AsyncResult(id).",
    **dict.fromkeys(("properties", "stamps", "stamped_headers"), "Use headers."),
    "origin": "Send it in headers.",
    "utc": "All times are in UTC.",
    "replaced_task_nesting": "A task cannot replace itself.",
    "group_index": "Pass it as an argument.",
}


@dataclass
class Context:
    """One call of a task.  In a direct call, `task()`, it has the arguments and `called_directly` only."""

    id: str | None = None
    task: str | None = None
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    #: how often it was started before; a start that ended with its worker counts, too.
    retries: int = 0
    called_directly: bool = True
    is_eager: bool = False
    hostname: str | None = None
    headers: Mapping[str, Any] | None = None
    #: as ISO text, as the call gave it.
    eta: str | None = None
    expires: str | None = None
    #: hard and soft, in seconds.
    timelimit: tuple[float | None, float | None] = (None, None)
    delivery_info: Mapping[str, Any] | None = None
    ignore_result: bool = False
    #: a worker calls a `__call__` of the project, which has not called that of Task.
    is_calling: bool = False

    @property
    def time_limit(self) -> float | None:
        return self.timelimit[0]

    @property
    def soft_time_limit(self) -> float | None:
        return self.timelimit[1]

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)

    def __getattr__(self, name: str) -> Any:
        remedy = REMEDIES.get(name)
        raise AttributeError(f"self.request has no {name}. {remedy}" if remedy else f"self.request has no {name}")


#: The tasks that this code runs in, with their calls; the innermost is the last.
_stack: ContextVar[tuple[tuple[Any, Context], ...]] = ContextVar("django_jobs_celery", default=())


@contextmanager
def entered(task: Any, context: Context) -> Iterator[None]:
    """Make this the call that `self.request` shows."""
    token = _stack.set((*_stack.get(), (task, context)))
    try:
        yield
    finally:
        _stack.reset(token)


def context_of(task: Any) -> Context:
    """Return the call of this task that this code runs in."""
    return next((context for each, context in reversed(_stack.get()) if each is task), Context())


class CurrentTask:
    """`current_task`: the task that this code runs in; false outside of tasks."""

    def __bool__(self) -> bool:
        return bool(_stack.get())

    def __getattr__(self, name: str) -> Any:
        if not self:
            raise AttributeError(f"current_task.{name}: this code does not run in a task.")
        return getattr(_stack.get()[-1][0], name)


def context_for(task: Any, job: RunningJob, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Context:
    """Return the call that a worker runs."""
    sent = (job.meta or {}).get(META, {})
    earlier = job.max_attempts - MOST_ATTEMPTS
    return Context(
        id=job.id,
        task=job.name,
        args=args,
        kwargs=kwargs,
        retries=max(0, job.attempt - 1 - max(0, earlier)),
        called_directly=False,
        hostname=job.worker,
        headers=sent.get("headers"),
        eta=sent.get("eta"),
        expires=sent.get("expires"),
        timelimit=(sent.get("hard", task.time_limit), sent.get("soft", task.soft_time_limit)),
        delivery_info={"exchange": "", "routing_key": job.queue, "priority": sent.get("priority")},
        ignore_result=sent.get("ignore_result", bool(task.ignore_result)),
    )
