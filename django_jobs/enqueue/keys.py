"""The keys of a call: of its uniqueness, and of its limit.

Unique keys are SHA-256 over canonical JSON.  1, 1.0, "1" and True differ; the order of arguments does not matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from django_jobs.core.definition import JobDefinition
from django_jobs.exceptions import InvalidArguments, PayloadError
from django_jobs.serialization.arguments import canonical

#: A limit key up to this length is kept as text, which people can read in the admin.
_READABLE = 100


def digest_of_arguments(
    definition: JobDefinition, args: Sequence[Any], kwargs: Mapping[str, Any], only: Sequence[str] | None = None
) -> str:
    """Return the key of a call: equal for calls that mean the same, however the arguments were passed.

    Defaults count as if they had been passed.  `only` names the parameters that matter; None = all of them.
    """
    bound = _arguments_by_name(definition, args, kwargs)
    if only is not None:
        if unknown := [name for name in only if name not in bound]:
            raise InvalidArguments(f"{definition.name}: unique_on names {unknown[0]!r}, which this call does not pass.")
        bound = {name: bound[name] for name in only}
    return _digest(["arguments", definition.name, bound])


def digest_of_key(definition: JobDefinition, key: Any) -> str:
    """Return the key of a call that is unique by a value of the caller's.  Raises PayloadError if it is not JSON."""
    return _digest(["key", definition.name, key])


def limit_key(definition: JobDefinition, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the key that `max_concurrency` counts this call under: the job's name and its `concurrency_key`."""
    key = definition.concurrency_key
    if key is None:
        return definition.name
    if callable(key):
        value = key(*args, **kwargs)
    else:
        bound = _arguments_by_name(definition, args, kwargs)
        if key not in bound:
            raise InvalidArguments(f"{definition.name}: concurrency_key names {key!r}, which this call does not pass.")
        value = bound[key]
    text = canonical(value, "concurrency_key")
    return f"{definition.name}:{text.decode() if len(text) <= _READABLE else sha256(text).hexdigest()}"


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


def _digest(parts: list[Any]) -> str:
    return sha256(canonical(parts, "unique key")).hexdigest()
