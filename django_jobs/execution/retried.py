"""What `raise Retry(args=…, kwargs=…, max_attempts=…, queue=…)` makes of a job: the same job with another record, or in
another queue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.core.definition import JobDefinition
from django_jobs.core.options.declared import check_options
from django_jobs.core.values import Job
from django_jobs.enqueueing.keys import controls_with
from django_jobs.enqueueing.request import check_size, unknown_queue
from django_jobs.exceptions import InvalidArguments, JobsError, PayloadError, Retry
from django_jobs.serialization.arguments import compact, dump


def retried(job: Job, definition: JobDefinition, error: BaseException) -> tuple[BaseException, Job | None]:
    """Return the error with which the attempt failed, and the job as it is from now on if the error changes it.

    If the changes are wrong, the attempt has failed with the error that says so, as if the function had raised it: the
    retry would run with the old arguments, which its author does not want."""
    if not isinstance(error, Retry):
        return error, None
    try:
        following = _in_queue(_with_limit(_with_arguments(job, definition, error), error), error)
    except JobsError as wrong:
        return wrong.with_traceback(error.__traceback__), None
    except BaseException as wrong:  # of the function that makes the concurrency key
        return wrong, None
    return error, None if following is job else following


def _with_arguments(job: Job, definition: JobDefinition, error: Retry) -> Job:
    args: Any = error.new_args
    kwargs: Any = error.new_kwargs
    if args is None and kwargs is None:
        return job
    # The message has no value: it may be a sensitive one.
    if not isinstance(args, list | tuple | None):
        raise InvalidArguments(f"Retry(args=…) is of type {type(args).__name__}: use a tuple, as in Retry(args=(7,)).")
    if not isinstance(kwargs, Mapping | None):
        raise InvalidArguments(f"Retry(kwargs=…) is of type {type(kwargs).__name__}: use a dict of arguments.")
    try:
        new = json.loads(dump(args or (), kwargs or {}))
    except PayloadError as wrong:
        raise PayloadError(f"{job.name}: Retry: {definition.with_names(str(wrong))}") from wrong
    before = json.loads(job.args)
    call = [before[0] if args is None else new[0], before[1] if kwargs is None else new[1]]
    definition.check_call(*call)
    text = compact(call)
    check_size(job.name, text, get_settings())
    options = replace(job.options, sensitive=definition.stored_options.sensitive or job.options.sensitive)
    return job._replace(args=text, controls=controls_with(definition, job, text), options=options)


def _with_limit(job: Job, error: Retry) -> Job:
    if error.max_attempts is None:
        return job
    most = check_options({"max_attempts": error.max_attempts}, "Retry()")["max_attempts"]
    return job._replace(options=replace(job.options, max_attempts=most))


def _in_queue(job: Job, error: Retry) -> Job:
    if error.queue is None or error.queue == job.queue:
        return job
    settings = get_settings()
    if not isinstance(error.queue, str) or error.queue not in settings.queues:
        raise unknown_queue(error.queue, settings)
    return job._replace(queue=error.queue)
