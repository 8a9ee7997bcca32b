"""The calls that enqueue, as methods of every job: `send_receipt.enqueue(7)`, `await send_receipt.aenqueue(7)`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, Unpack

from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.options.checks import merged
from django_jobs.core.options.declared import CHANGEABLE, OPTIONS, SHARED, check_limits, check_options
from django_jobs.enqueueing.async_submit import asubmit
from django_jobs.enqueueing.call_options import CALL_OPTIONS, check_id, check_patience, delay_ms, moment
from django_jobs.enqueueing.handle import DUPLICATE, FULL, JobHandle, V
from django_jobs.enqueueing.keywords import UsingKeywords
from django_jobs.enqueueing.request import NewJobRequest, request_for, unknown_queue
from django_jobs.enqueueing.signature import Signature
from django_jobs.enqueueing.submit import submit, submit_many
from django_jobs.exceptions import InvalidArguments, InvalidJob, JobIds
from django_jobs.formatting import counted
from django_jobs.runtime.async_twin import async_twin

P = ParamSpec("P")
Delay = float | timedelta


class Calls(Generic[P, V]):
    """All the ways to enqueue one job.  The signatures are those of the function, without its context.

    A method with `a` before its name is the async form of the method without it."""

    _definition: JobDefinition
    _overrides: Mapping[str, Any] = {}

    # -- now, later ------------------------------------------------------------

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[V]:
        """Enqueue, to run as soon as a worker is free."""
        return submit(self._request(args, kwargs))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[V]:
        """Async twin of `enqueue`."""
        return await asubmit(self._request(args, kwargs))

    def enqueue_in(self, delay: Delay, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[V]:
        """Enqueue, to run in `delay` seconds (or a timedelta) from now, by the store's clock."""
        return submit(self._request(args, kwargs, run_in=delay_ms(delay)))

    async def aenqueue_in(self, delay: Delay, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[V]:
        """Async twin of `enqueue_in`."""
        return await asubmit(self._request(args, kwargs, run_in=delay_ms(delay)))

    def enqueue_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[V]:
        """Enqueue, to run at `when`: an aware datetime; one in the past means now."""
        return submit(self._request(args, kwargs, run_at=moment(when, "when")))

    async def aenqueue_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[V]:
        """Async twin of `enqueue_at`."""
        return await asubmit(self._request(args, kwargs, run_at=moment(when, "when")))

    def try_enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[V] | None:
        """Enqueue, or return None at once if the queue is full.

        Inside atomic() this is not known yet: the handle's state becomes "full" at the commit.
        """
        handle = submit(self._request(args, kwargs, raise_when_full=False, block_timeout=0))
        return None if handle.state == FULL else handle

    atry_enqueue = async_twin(try_enqueue)

    def enqueue_many(
        self, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]], *, job_ids: Sequence[str] | None = None
    ) -> list[JobHandle[V]]:
        """Enqueue one job per item: a tuple of positional or a dict of keyword arguments.  One round trip per 1,000.

        All are checked before the first is stored.  Only an iterator, such as a generator, is read, checked and sent
        batch by batch, so that a million items need little memory: an error in one leaves the batches before it stored
        (inside atomic(), all jobs wait for the commit).  If a queue has no room for a batch, QueueFull has the number
        of earlier jobs that were `accepted`.

        `job_ids`: your own id for each item.  Or, to repeat a call that raised an error, that error's `error.job_ids`
        with the same items: the call then adds the missing jobs, and none twice.
        """
        if isinstance(calls, Iterator) and job_ids is None and self._overrides.get("id") is None:
            return submit_many(calls, self._request_for_item)
        requests = [self._request_for_item(item) for item in calls]
        if job_ids is not None:
            _give_ids(requests, job_ids)
        elif len(requests) > 1 and (job_id := requests[0].id) is not None:
            raise InvalidArguments(
                f"enqueue_many: job_id={job_id!r} for {counted(len(requests), 'job')}. An id names one job. "
                "Enqueue each job with its own using(job_id=…)."
            )
        answered = job_ids.answered if isinstance(job_ids, JobIds) else ()
        return submit_many(requests, lambda request: request, answered)

    aenqueue_many = async_twin(enqueue_many)

    # -- workflows ----------------------------------------------------------------

    def s(self, *args: P.args, **kwargs: P.kwargs) -> Signature:
        """Return this call as a signature: a part of a chain, a group, a Workflow or a Batch.

        It is checked now, as `enqueue` checks it.  Options come before it: `task.using(priority=5).s(7)`."""
        return Signature(self._request(args, kwargs))

    # -- unique ----------------------------------------------------------------

    def enqueue_unique(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[V] | None:
        """Enqueue, unless an equal job already waits: then return None."""
        return self._unique(self._request(args, kwargs))

    aenqueue_unique = async_twin(enqueue_unique)

    def enqueue_unique_in(self, delay: Delay, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[V] | None:
        """`enqueue_unique`, to run in `delay` seconds (or a timedelta)."""
        return self._unique(self._request(args, kwargs, run_in=delay_ms(delay)))

    aenqueue_unique_in = async_twin(enqueue_unique_in)

    def enqueue_unique_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[V] | None:
        """`enqueue_unique`, to run at `when` (an aware datetime)."""
        return self._unique(self._request(args, kwargs, run_at=moment(when, "when")))

    aenqueue_unique_at = async_twin(enqueue_unique_at)

    def enqueue_unique_by_key(self, key: Any, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[V] | None:
        """Enqueue under your own key (any JSON value).  If a job with that key waits, it gets these arguments and
        None is returned."""
        return self._unique(self._request(args, kwargs, unique_key=key, on_conflict=self._conflict_by_key()))

    aenqueue_unique_by_key = async_twin(enqueue_unique_by_key)

    def enqueue_unique_by_key_in(
        self, key: Any, delay: Delay, /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[V] | None:
        """`enqueue_unique_by_key`, to run in `delay` seconds; a waiting job keeps its own time."""
        run_in = delay_ms(delay)
        request = self._request(args, kwargs, unique_key=key, on_conflict=self._conflict_by_key(), run_in=run_in)
        return self._unique(request)

    aenqueue_unique_by_key_in = async_twin(enqueue_unique_by_key_in)

    # -- with other options ------------------------------------------------------------

    def using(self, **options: Unpack[UsingKeywords]) -> Using[P, V]:
        """Return a copy that enqueues with other options, for any call.

        It takes the options of `@job` that may differ from call to call (`tags` are added to those of the job), and
        those of one call: `job_id` (text: a second job with that id is not added), `run_at` and `expires_at` (aware
        datetimes), `on_commit` (bool), `block_timeout` (seconds to wait for room in a queue with ON_FULL "block"),
        `meta` (dict of JSON values).
        Raises InvalidArguments, InvalidJob or UnknownQueue; each error names the wrong value.
        """
        new = _overrides(self._definition, options)
        if "tags" in new:
            new["tags"] = _all_tags(self._definition, self._overrides.get("tags", self._definition.tags), new["tags"])
        if "changed" in new:
            new["changed"] = {**self._overrides.get("changed", {}), **new["changed"]}
            limits = {"timeout": self._definition.timeout, "soft_timeout": self._definition.soft_timeout}
            check_limits({**limits, **new["changed"]}, f"{self._definition.name}.using()")
        return Using(self._definition, {**self._overrides, **new})

    # -- how -----------------------------------------------------------------------

    def _request(self, args: tuple[Any, ...], kwargs: dict[str, Any], **fields: Any) -> NewJobRequest:
        request = request_for(self._definition, args, kwargs)
        for name, value in self._overrides.items():
            setattr(request, name, value)
        for name, value in fields.items():
            setattr(request, name, value)
        if "block_timeout" in kwargs and "block_timeout" not in self._definition.signature.parameters:
            request.block_timeout = check_patience(kwargs["block_timeout"])
            request.kwargs = {name: value for name, value in kwargs.items() if name != "block_timeout"}
        return request

    def _request_for_item(self, item: Any) -> NewJobRequest:
        if isinstance(item, tuple | list):
            return self._request(tuple(item), {})
        if isinstance(item, Mapping):
            return self._request((), dict(item))
        raise InvalidArguments(
            f"enqueue_many: {item!r} is neither a tuple nor a dict of arguments, as in [(7,), (8,)]."
        )

    def _unique(self, request: NewJobRequest) -> JobHandle[V] | None:
        request.unique = request.unique if request.unique is not None else "queued"
        handle = submit(request)
        return None if handle.state == DUPLICATE else handle

    def _conflict_by_key(self) -> str:
        """A key of the caller's replaces the arguments, unless the caller chose otherwise."""
        chosen = self._overrides.get("on_conflict", self._definition.on_conflict)
        return "replace" if chosen == "skip" else chosen


class Using(Calls[P, V]):
    """A job with options for the next call, as `using` returns it.  It can be used for any number of calls."""

    def __init__(self, definition: JobDefinition, overrides: Mapping[str, Any]) -> None:
        self._definition, self._overrides = definition, overrides

    def __repr__(self) -> str:
        return f"<{self._definition!r} using {dict(self._overrides)!r}>"


def enqueue(name: str, /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
    """Enqueue the job whose name, or alias, is `name`, as its own `enqueue` does.

    Raises UnknownJob if no job of that name is registered here."""
    return Using[Any, Any](registry.get(name), {}).enqueue(*args, **kwargs)


async def aenqueue(name: str, /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
    """Async twin of `enqueue`."""
    # Other names than those of `@job` may be looked up in the database.
    definition = registry.get(name) if registry.has(name) else await _find_in_thread(name)
    return await Using[Any, Any](definition, {}).aenqueue(*args, **kwargs)


_find_in_thread = async_twin(registry.get)


def _overrides(definition: JobDefinition, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked options of `using` as fields of NewJobRequest."""
    of_call = {name: value for name, value in options.items() if name in CALL_OPTIONS}
    shared = {name: value for name, value in options.items() if name not in CALL_OPTIONS}
    if lasting := sorted(shared.keys() & OPTIONS.keys() - SHARED):
        raise InvalidJob(
            f"{definition.name}.using(): {lasting[0]} applies to every call of a job. Write it as @job({lasting[0]}=…)."
        )
    fields = check_options(shared, f"{definition.name}.using()", SHARED | CALL_OPTIONS.keys())
    settings = get_settings()
    if "queue" in fields and fields["queue"] not in settings.queues:
        raise unknown_queue(fields["queue"], settings)
    if fields.get("max_attempts", 1) != 1 and definition.delivery == "at_most_once":
        raise InvalidJob(f"{definition.name}.using(): max_attempts contradicts delivery='at_most_once'. Leave it out.")
    if changed := {name: fields.pop(name) for name in CHANGEABLE & fields.keys()}:
        if callable(changed.get("backoff")):
            raise InvalidJob(f"{definition.name}.using(): backoff is stored with the job. Use a list of seconds.")
        fields["changed"] = changed
    for name, value in of_call.items():
        fields["id" if name == "job_id" else name] = CALL_OPTIONS[name].check(value)
    return fields


def _all_tags(definition: JobDefinition, tags: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    try:
        return merged(tags, more)
    except ValueError as error:
        raise InvalidJob(f"{definition.name}.using(): tags={tuple(more)!r}: {error}") from error


def _give_ids(requests: Sequence[NewJobRequest], job_ids: Sequence[str]) -> None:
    if len(requests) != len(job_ids) or len(set(job_ids)) != len(job_ids):
        raise InvalidArguments(
            f"enqueue_many: {counted(len(job_ids), 'job_id')} ({len(set(job_ids))} different) for "
            f"{counted(len(requests), 'job')}. Give each job its own id, in the order of the jobs."
        )
    for request, job_id in zip(requests, job_ids, strict=True):
        request.id = check_id(job_id)
