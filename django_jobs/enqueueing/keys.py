"""The keys of a call: of its uniqueness, and of its limit.

Unique keys are SHA-256 over canonical JSON.  1, 1.0, "1" and True differ; the order of arguments does not matter."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import Controls, Job
from django_jobs.exceptions import InvalidArguments, PayloadError, Signal
from django_jobs.serialization import arguments
from django_jobs.serialization.arguments import canonical
from django_jobs.serialization.record import encode

logger = logging.getLogger("django_jobs.worker")

#: A limit key up to this length is kept as text, which people can read in the admin.
_READABLE = 100


def digest_of_arguments(
    definition: JobDefinition,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    only: Sequence[str] | None = None,
    scope: str = "",
) -> str:
    """Return the key of a call: equal for calls that mean the same, however the arguments were passed.

    Defaults count as if they had been passed.  `only` names the parameters that matter; None = all of them.
    """
    bound = _arguments_by_name(definition, args, kwargs)
    if only is not None:
        if unknown := [name for name in only if name not in bound]:
            raise InvalidArguments(f"{definition.name}: unique_on names {unknown[0]!r}, which this call does not pass.")
        bound = {name: bound[name] for name in only}
    return _digest(["arguments", definition.identity, bound], scope)


def digest_of_key(definition: JobDefinition, key: Any, scope: str = "") -> str:
    """Return the key of a call that is unique by a value of the caller's.  Raises PayloadError if it is not JSON."""
    return _digest(["key", definition.identity, key], scope)


def limit_key(definition: JobDefinition, args: Sequence[Any], kwargs: Mapping[str, Any], scope: str = "") -> str:
    """Return the key that `max_concurrency` counts this call under: its type, `concurrency_key` and scope."""
    key = definition.concurrency_key
    if key is None:
        return limit_key_of_type(definition, scope)
    if callable(key):
        value = key(*args, **kwargs)
    else:
        bound = _arguments_by_name(definition, args, kwargs)
        if key not in bound:
            raise InvalidArguments(f"{definition.name}: concurrency_key names {key!r}, which this call does not pass.")
        value = bound[key]
    text = canonical(value, "concurrency_key")
    readable = text.decode() if len(text) <= _READABLE else sha256(text).hexdigest()
    return f"{definition.identity}:{readable}@{scope}" if scope else f"{definition.identity}:{readable}"


def limit_key_of_type(definition: JobDefinition, scope: str) -> str:
    """Return the key of a type without `concurrency_key`."""
    return f"{definition.identity}:@{scope}" if scope else definition.identity


def limit_now(job: Job) -> int:
    """Return how many jobs with this job's limit key may run at once, as its type says now; 0 = no limit."""
    definition = registry.find(job.name)
    return job.controls.limit if definition is None else definition.max_concurrency


def refiled(definition: JobDefinition, job: Job) -> bytes | None:
    """Return the record of a claimed job under the limit that its type has now; None if it counts under that already.

    A deploy may give the type a limit, or make it one for each value of an argument, or drop its oldest name.  If only
    the value of an argument decides, jobs keep the key with which they were enqueued: its function may return another
    key at another time."""
    if not definition.max_concurrency:
        return None  # its key limits nothing now
    key, scope, whole = job.controls.limit_key, job.options.scope, definition.concurrency_key is None
    of_type = limit_key_of_type(definition, scope)
    if key == of_type if whole else key != of_type and (key or "").startswith(f"{definition.identity}:"):
        return None
    try:
        args, kwargs = arguments.load(job.args) if callable(definition.concurrency_key) else arguments.read(job.args)
        made = of_type if whole else limit_key(definition, args, kwargs, scope)
    except Exception as error:  # of the function that makes the key, or a model instance that is gone
        logger.warning("%s %s runs without its limit: its concurrency_key failed (%s)", job.name, job.id, error)
        return None
    return encode(job._replace(controls=replace(job.controls, limit_key=made, limit=definition.max_concurrency)))


def controls_with(definition: JobDefinition, job: Job, text: bytes) -> Controls:
    """Return the job's controls for the arguments `text`: with a new limit key and, if it was made of the arguments, a
    new unique key."""
    controls, scope = job.controls, job.options.scope
    if controls.limit_key is not None and definition.max_concurrency:
        controls = replace(controls, limit_key=limit_key(definition, *loaded(text), scope))
    if controls.unique is not None:
        # A record does not say what its key was made of.  A key that the caller chose stays as it is.
        for only in (definition.unique_on, None):
            try:
                made_so = controls.unique == digest_of_arguments(definition, *loaded(job.args), only, scope)
            except InvalidArguments:  # the function has changed since, or a model instance no longer exists
                continue
            if made_so:
                return replace(controls, unique=digest_of_arguments(definition, *loaded(text), only, scope))
    return controls


def loaded(text: bytes) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a stored call.  Raises InvalidArguments if a model instance is gone, PayloadError."""
    try:
        return arguments.load(text)
    except Signal as error:  # how the job would end if a model instance no longer exists
        raise InvalidArguments(str(error)) from error


def _arguments_by_name(definition: JobDefinition, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by parameter name; `**kwargs` become single entries, `*args` stay one entry."""
    bound = definition.bind(args, kwargs)
    given = set(bound.arguments)
    bound.apply_defaults()
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        parameter = definition.signature.parameters[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            named.update(value)
        elif name in given or parameter.kind is parameter.VAR_POSITIONAL or _can_be_stored(value):
            named[name] = list(value) if parameter.kind is parameter.VAR_POSITIONAL else value
    return named


def _can_be_stored(default: Any) -> bool:
    """Return whether a default can be stored.  One such as `object()` says nothing about the call and is never sent."""
    try:
        canonical(default)
    except PayloadError:
        return False
    return True


def _digest(parts: list[Any], scope: str) -> str:
    return sha256(canonical([*parts, scope] if scope else parts, "unique key")).hexdigest()
