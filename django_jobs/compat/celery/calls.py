"""What one call says, `apply_async(…)`, as a request of django_jobs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

from django.utils import timezone

from django_jobs.compat.celery.conf import conf, route
from django_jobs.compat.celery.exceptions import Unsupported
from django_jobs.compat.celery.missing import CALL_OPTIONS
from django_jobs.compat.celery.request import META
from django_jobs.compat.celery.signals import after_task_publish, before_task_publish
from django_jobs.conf import get_settings
from django_jobs.core.options.declared import MAX_PRIORITY, check_options
from django_jobs.enqueueing.call_options import check_id, delay_ms, moment
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.enqueueing.request import NewJobRequest, new_id, now_ms, request_for, unknown_queue
from django_jobs.enqueueing.submit import submit
from django_jobs.exceptions import InvalidArguments, PayloadError
from django_jobs.formatting import counted
from django_jobs.serialization import arguments

KNOWN = frozenset[str]().union(
    ["task_id", "countdown", "eta", "expires", "queue", "priority", "link", "link_error", "time_limit"],
    ["soft_time_limit", "retry", "headers", "ignore_result", "serializer", "compression"],
)
#: A task with only a soft limit has this limit, too: it must run alone in its process.
NO_LIMIT = 3650 * 86_400
#: The task that enqueues error callbacks.
ERRBACKS = "celery.errbacks"
#: Signatures of error callbacks, each with the step whose id it is told; None = that of the failed task.
Errbacks: TypeAlias = Sequence[tuple[int | None, Any]]
#: Celery's priorities with Redis.
_LOWEST = 9


def check_call(name: str, options: Mapping[str, Any]) -> None:
    """Raise Unsupported or TypeError for an option that a call cannot have."""
    for option, value in options.items():
        if option in CALL_OPTIONS and value is not None:
            raise Unsupported(f"{name}.apply_async({option}=…): {CALL_OPTIONS[option]}")
        if option not in KNOWN and option not in CALL_OPTIONS:
            raise TypeError(f"{name}.apply_async() has no option {option!r}. It has: {', '.join(sorted(KNOWN))}.")
    if options.get("countdown") is not None and options.get("eta") is not None:
        raise InvalidArguments(f"{name}.apply_async(): countdown and eta exclude each other. Pass one of them.")
    if options.get("serializer", "json") not in (None, "json"):
        raise Unsupported(
            f"{name}.apply_async(serializer={options['serializer']!r}): jobs are JSON with dates, decimals, UUIDs, "
            "bytes and model instances. Remove it, and pass ids instead of objects."
        )


def publish(
    task: Any, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any], errbacks: Errbacks = ()
) -> JobHandle:
    """Enqueue one call.  Raises what `enqueue` raises."""
    request = request_of(task, args, kwargs, options)
    call_back(request, errbacks)
    handle = submit(request)
    if after_task_publish.receivers:
        headers = {**((request.meta or {}).get(META, {}).get("headers") or {}), "id": handle.id, "task": task.name}
        body: Any = (args, kwargs, {})
        after_task_publish.send(task.name, body=body, exchange="", routing_key=request.queue, headers=headers)
    return handle


def request_of(
    task: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    is_step: bool = False,
    is_later: bool = False,
) -> NewJobRequest:
    """Return the request for one call.  Receivers of before_task_publish may change args, kwargs and headers.

    `is_step`: it becomes a step of a workflow, whose id follows from the workflow's.  `is_later`: steps come before it,
    and its times count from their end."""
    check_call(task.name, options)
    chosen = chosen_for(task, task.name, args, kwargs, options)
    args, kwargs = list(args or ()), dict(kwargs or {})
    headers = dict(chosen.get("headers") or {})
    id = check_id(chosen["task_id"]) if "task_id" in chosen else None
    if id is None and not is_step and before_task_publish.receivers:
        id = new_id(now_ms())  # the receivers learn it
    given = {**headers, "id": id, "task": task.name, "eta": chosen.get("eta"), "expires": chosen.get("expires")}
    told = dict(given)
    place = place_of(task, chosen)
    before_task_publish.send(
        task.name, body=(args, kwargs, {}), exchange="", routing_key=place[0], headers=told, properties={}, declare=[],
        retry_policy=None,
    )  # fmt: skip
    headers |= {name: value for name, value in told.items() if name not in given or name in headers}

    request = request_for(task.definition, args, kwargs, place)
    request.id = id
    if "countdown" in chosen:
        request.run_in = delay_ms(chosen["countdown"])
    elif "eta" in chosen:
        request.run_at = moment(_aware(chosen["eta"]), "eta")
    if "expires" in chosen:
        after = seconds(chosen["expires"])
        if is_later and after is not None:
            request.expires_in = max(0, round(after * 1000) - (request.run_in or 0))
        else:
            request.expires_at = moment(_expiry(chosen["expires"]), "expires")
    request.changed = _changed(task, chosen)
    meta = _meta(task, chosen, headers)
    request.meta = {META: meta} if meta else None
    return request


def call_back(request: NewJobRequest, errbacks: Errbacks) -> None:
    """Let a job call these error callbacks when it is dead, however that comes.  Raises PayloadError if they are long.

    The job stores them, and the end of the job and the note that `celery.errbacks` is to be enqueued are one step."""
    if not errbacks:
        return
    told = [
        [step, errback.task, list(errback.args), errback.kwargs, errback.options, errback.immutable]
        for step, errback in errbacks
    ]
    packed = arguments.dump([told], {})
    if len(packed) > (most := get_settings().max_payload // 2):
        raise PayloadError(
            f"{request.name}: the error callbacks take {counted(len(packed), 'byte')}; at most {most}, half of "
            "MAX_PAYLOAD, are kept. Store the data, and pass its id."
        )
    request.changed = {**(request.changed or {}), "on_dead": ERRBACKS}
    meta = (request.meta or {}).get(META, {})
    request.meta = {**(request.meta or {}), META: {**meta, "errbacks": packed.decode()}}


def check_errback(errback: Any) -> None:
    """Raise InvalidArguments if a signature cannot be called as an error callback, UnknownQueue for its queue."""
    told = () if errback.immutable else (None,) * (3 if takes_error(errback) else 1)
    try:
        errback.type.definition.check_call((*told, *errback.args), errback.kwargs)
    except TypeError as error:
        raise InvalidArguments(
            f"link_error={errback!r}: {error} As in Celery, an error callback gets the id of the failed task; with "
            "more than one parameter to fill, unless it is bound, it gets (request, error, traceback)."
        ) from error
    settings = get_settings()
    if (queue := errback.options.get("queue")) is not None and queue not in settings.queues:
        raise unknown_queue(queue, settings)


def takes_error(errback: Any) -> bool:
    """Whether it is called with (request, error, traceback); otherwise it is enqueued with the id of the failed task.

    As in Celery: a function that is not bound, and has more than one positional parameter left."""
    function = inspect.getattr_static(type(errback.type), "run")
    if not isinstance(function, staticmethod):
        return False
    given = () if errback.immutable else errback.args
    try:
        spec = inspect.getfullargspec(
            partial(function.__func__, *given, **({} if errback.immutable else errback.kwargs))
        )
    except TypeError:  # they do not fit
        spec = inspect.getfullargspec(function.__func__)
    return bool(spec.varargs) or len(spec.args) > 1


def chosen_for(task: Any, name: str, args: Any, kwargs: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call, with those that the decorator and the routes give it.  `task`: None if this process
    does not know the name."""
    given = [(option, getattr(task, option, None)) for option in ("queue", "priority", "expires")]
    chosen = {option: value for option, value in (*given, *options.items()) if value is not None}
    return {**route(name, args, kwargs, chosen, task), **chosen}


def queue_of(chosen: Mapping[str, Any]) -> Any:
    """Return the name of the queue; None: that of the job."""
    queue = chosen.get("queue") or conf.task_default_queue
    return getattr(queue, "name", queue)


def place_of(task: Any, chosen: Mapping[str, Any]) -> tuple[str, int]:
    """Return the queue and the priority of a call."""
    return queue_of(chosen) or task.definition.queue, priority_of(task.name, chosen.get("priority"))


def priority_of(name: str, priority: int | None) -> int:
    """Return Celery's priority as ours, where the highest is served first."""
    asked = conf.task_default_priority if priority is None else priority
    if asked is None:
        return 0
    if isinstance(asked, bool) or not isinstance(asked, int) or not 0 <= asked <= 255:
        raise InvalidArguments(f"{name}.apply_async(priority={asked!r}): use a whole number from 0 to 255.")
    return -min(asked, _LOWEST) if conf.first_is_highest else min(asked, MAX_PRIORITY)


def _aware(when: Any) -> Any:
    if isinstance(when, str):
        when = datetime.fromisoformat(when)
    return timezone.make_aware(when) if isinstance(when, datetime) and timezone.is_naive(when) else when


def _expiry(expires: Any) -> Any:
    after = seconds(expires)
    return _aware(expires) if after is None else datetime.now(UTC) + timedelta(seconds=after)


def seconds(expires: Any) -> float | None:
    """Return the time in seconds; None if it is a moment."""
    if isinstance(expires, timedelta):
        return expires.total_seconds()
    return expires if isinstance(expires, int | float) and not isinstance(expires, bool) else None


def _changed(task: Any, chosen: Mapping[str, Any]) -> dict[str, Any] | None:
    changed: dict[str, Any] = {}
    if "time_limit" in chosen or "soft_time_limit" in chosen:
        changed["timeout"] = limit_of(
            task.name, chosen.get("time_limit", task.time_limit), chosen.get("soft_time_limit", task.soft_time_limit)
        )
    if "ignore_result" in chosen:
        changed["keep_result"] = 0 if chosen["ignore_result"] else conf.keeps_results
    return check_options(changed, f"{task.name}.apply_async()") if changed else None


def limit_of(name: str, hard: float | None, soft: float | None) -> float | None:
    """Return the `timeout` of the job.  Raises ValueError if the soft limit is not the shorter one."""
    if hard and soft and soft > hard:
        raise ValueError(f"{name}: soft_time_limit={soft} must be less than or equal to time_limit={hard}.")
    return hard or (NO_LIMIT if soft else None)


def _meta(task: Any, chosen: Mapping[str, Any], headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `self.request` shows of a call and the job does not say."""
    meta: dict[str, Any] = {"headers": headers} if headers else {}
    for name, key in (("time_limit", "hard"), ("soft_time_limit", "soft"), ("ignore_result", "ignore_result")):
        if name in chosen:
            meta[key] = chosen[name]
    for name in ("eta", "expires"):
        if isinstance(value := chosen.get(name), datetime | str):
            meta[name] = value if isinstance(value, str) else value.isoformat()
    if chosen.get("priority") is not None:
        meta["priority"] = chosen["priority"]
    return meta
