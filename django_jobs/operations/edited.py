"""A job's record with other arguments: checks them, and computes what depends on them.  Uses no store."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.sensitive import HIDDEN
from django_jobs.core.values import Job
from django_jobs.enqueueing.keys import controls_with
from django_jobs.enqueueing.request import check_size
from django_jobs.exceptions import InvalidArguments
from django_jobs.serialization.arguments import compact
from django_jobs.serialization.masking import shown_call
from django_jobs.serialization.record import encode


def record_with(job: Job, call: list[Any]) -> bytes | None:
    """Return the record with the arguments `call` (JSON values as `shown_call` shows them); None if it has these
    already.

    Masked values keep the stored value.

    Raises InvalidArguments, PayloadError, UnknownJob."""
    definition = registry.get(job.name)
    text = compact(unmask(json.loads(job.args), shown_call(job), call))
    check_size(job.name, text, get_settings())
    if text == compact(json.loads(job.args)):
        return None
    definition.check_call(*json.loads(text))
    options = replace(job.options, sensitive=definition.stored_options.sensitive or job.options.sensitive)
    return encode(job._replace(args=text, controls=controls_with(definition, job, text), options=options))


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
