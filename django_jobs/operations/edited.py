"""A job's record with other arguments: checks them, and computes what depends on them.  Uses no store."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.sensitive import HIDDEN
from django_jobs.core.values import Controls, Job
from django_jobs.enqueue.keys import digest_of_arguments, limit_key
from django_jobs.exceptions import InvalidArguments, PayloadError, Signal
from django_jobs.formatting import counted
from django_jobs.serialization import arguments
from django_jobs.serialization.payloads import arguments_of
from django_jobs.serialization.record import encode


def record_with(job: Job, call: list[Any]) -> bytes | None:
    """Return the record with the arguments `call` (JSON values as `arguments_of` shows them); None if it has these
    already.

    Masked values keep the stored value.

    Raises InvalidArguments, PayloadError, UnknownJob."""
    definition = registry.get(job.name)
    text = compact(unmask(json.loads(job.args), arguments_of(job), call))
    if len(text) > (most := get_settings().max_payload):
        size = counted(len(text), "byte")
        raise PayloadError(
            f"The arguments of {job.name} take {size}; MAX_PAYLOAD is {most}. "
            "Store the data and pass its id, or raise DJANGO_JOBS['MAX_PAYLOAD']."
        )
    if text == compact(json.loads(job.args)):
        return None
    definition.check_call(*json.loads(text))
    options = replace(job.options, sensitive=definition.stored_options.sensitive or job.options.sensitive)
    return encode(job._replace(args=text, controls=_controls(definition, job, text), options=options))


def _controls(definition: JobDefinition, job: Job, text: bytes) -> Controls:
    """Return the job's controls with a new limit key and, if it was made of the arguments, a new unique key."""
    controls = job.controls
    if controls.limit_key is not None and definition.max_concurrency:
        controls = replace(controls, limit_key=limit_key(definition, *loaded(text)))
    if controls.unique is not None:
        # A record does not say what its key was made of.  A key that the caller chose stays as it is.
        for only in (definition.unique_on, None):
            try:
                made_so = controls.unique == digest_of_arguments(definition, *loaded(job.args), only)
            except InvalidArguments:  # the function has changed since, or a model instance no longer exists
                continue
            if made_so:
                return replace(controls, unique=digest_of_arguments(definition, *loaded(text), only))
    return controls


def loaded(text: bytes) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a stored call.  Raises InvalidArguments if a model instance is gone, PayloadError."""
    try:
        return arguments.load(text)
    except Signal as error:  # how the job would end if a model instance no longer exists
        raise InvalidArguments(str(error)) from error


def unmask(stored: Any, shown: Any, edited: Any) -> Any:
    """Return the edited call with the stored value wherever the mask was left."""
    args, kwargs = edited
    old_args, old_kwargs = stored
    was_hidden = shown is not None
    for i, value in enumerate(args):
        if value == HIDDEN and was_hidden and i < len(shown[0]) and shown[0][i] == HIDDEN:
            args[i] = old_args[i]
    for key, value in kwargs.items():
        if value == HIDDEN and was_hidden and shown[1].get(key) == HIDDEN:
            kwargs[key] = old_kwargs[key]
    if HIDDEN in args or HIDDEN in kwargs.values():
        raise InvalidArguments(f"A masked value {HIDDEN} was moved. Leave it where it is, or write the value itself.")
    return [args, kwargs]


def compact(call: Any) -> bytes:
    """Return a call (JSON values) as it is stored."""
    return json.dumps(call, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
