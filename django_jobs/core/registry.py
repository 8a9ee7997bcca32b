"""The jobs of this process by name.  `@job` fills it at import; only jobs in here can run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from hashlib import sha256
from threading import Lock

from django.apps import apps

from django_jobs.conf import get_settings
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import RECORD_FORMAT, Controls
from django_jobs.exceptions import InvalidJob, NotKnownYet, UnknownJob

_lock = Lock()
_by_name: dict[str, JobDefinition] = {}
_aliases: dict[str, str] = {}
#: functions given to `add_resolver`, in the order in which they are asked.
_resolvers: list[tuple[Callable[[str], JobDefinition | None], Callable[[], frozenset[str]]]] = []
#: another object after each change of the names; set after the change, so that a digest made meanwhile is made again.
_state = object()
#: the state that it was made in, and the digest.
_digest: tuple[object, str] = (None, "")
#: the settings and the state that the limits were made in; the limits, and those with the types that have none.
_limits: tuple[object, object, str, str] = (None, None, "", "")


def register(definition: JobDefinition) -> None:
    """Register a job under its name and aliases.  The same function may be registered again (a reloaded module).

    Raises InvalidJob if another function has one of the names.
    """
    with _lock:
        for name in (definition.name, *definition.aliases):
            other = _by_name.get(current_name(name))
            if other is not None and other.origin != definition.origin:
                raise InvalidJob(
                    f"Two jobs are named {name!r}: {other.origin} and {definition.origin}. "
                    "Give one of them another name=…; names and aliases are unique in a project."
                )
            if other is not None and _is_second_in_its_module(other, definition):
                lines = [inspect.unwrap(each.func).__code__.co_firstlineno for each in (other, definition)]
                raise InvalidJob(
                    f"{definition.origin} is defined twice in its module, at lines {lines[0]} and {lines[1]}: the "
                    "second would replace the first. Rename one of the functions."
                )
        # A worker starts like every process of the project.  It may not know jobs of modules that are imported later.
        before = _by_name.get(definition.name) or _by_name.get(definition.origin)  # a task has a name for each backend
        definition.is_late = apps.ready and (before is None or before.is_late)
        _by_name[definition.name] = definition
        _aliases.pop(definition.name, None)
        for alias in definition.aliases:
            _aliases[alias] = definition.name
        changed()


def _is_second_in_its_module(first: JobDefinition, second: JobDefinition) -> bool:
    """Return whether one run of a module defines both.

    A module that is imported again has new globals, or (importlib.reload) is not being imported for the first time."""
    one, two = inspect.unwrap(first.func), inspect.unwrap(second.func)
    if one is two or getattr(one, "__globals__", None) is not getattr(two, "__globals__", 0):
        return False
    spec = two.__globals__.get("__spec__")
    return bool(getattr(spec, "_initializing", False)) and one.__code__.co_firstlineno != two.__code__.co_firstlineno


def unregister(name: str) -> None:
    """Forget a job and its aliases.  Does nothing if the job is not known."""
    with _lock:
        _by_name.pop(name, None)
        for alias in [alias for alias, target in _aliases.items() if target == name]:
            del _aliases[alias]
        changed()


def get(name: str) -> JobDefinition:
    """Return the job with that name or alias.  Raises UnknownJob, which suggests the nearest name."""
    definition = find(name)
    if definition is None:
        close = get_close_matches(name, [*_by_name, *_aliases], n=1)
        hint = f"Did you mean {close[0]!r}?" if close else "Is its module a jobs.py of an installed app?"
        raise UnknownJob(f"No job is named {name[:200]!r}. {hint} If it was renamed, add its old name to aliases.")
    return definition


def find(name: str) -> JobDefinition | None:
    """Return the job with that name or alias; None if this process does not know it.  A list asks for every row, so
    no name is suggested: that takes a millisecond."""
    definition = _by_name.get(current_name(name))
    if definition is not None:
        return definition
    return next((found for resolve, _ in _resolvers if (found := resolve(name)) is not None), None)


def known(name: str) -> JobDefinition | None:
    """Return the same; None also while nobody knows whether a remote type has that name.  For what has ended: it is
    recorded and told whatever the type is."""
    try:
        return find(name)
    except NotKnownYet:
        return None


def check_end_calls(definition: JobDefinition, controls: Controls) -> None:
    """Raise UnknownJob, InvalidArguments or InvalidJob if a job cannot be enqueued when this one has ended."""
    for name in filter(None, (controls.on_end, controls.on_dead)):
        called = get(name)
        if called is definition:
            raise InvalidJob(f"{definition.name}: on_end and on_dead name the job itself, which would run for ever.")
        called.check_call(({},), {})


def current_name(name: str) -> str:
    """Return the name that the job with that name or alias has now; the same name if this process does not know it."""
    return _aliases.get(name, name)


def identity_of(name: str) -> str:
    """Return the identity of the job with that name or alias; the same name if no `@job` of this process has it."""
    definition = _by_name.get(current_name(name))
    return name if definition is None else definition.identity


def names_of(name: str) -> tuple[str, ...]:
    """Return every name of the job with that name or alias, the current one last."""
    definition = _by_name.get(current_name(name))
    return (name,) if definition is None else tuple(dict.fromkeys((*definition.aliases, definition.name)))


def knows(name: str) -> bool:
    """Return whether a job of exactly that name is registered.  Asks no resolver and follows no alias."""
    return name in _by_name


def has(name: str) -> bool:
    """Return whether a job of that name or alias is registered.  Asks no resolver."""
    return name in _by_name or name in _aliases


def add_resolver(
    resolve: Callable[[str], JobDefinition | None], names: Callable[[], frozenset[str]], *, last: bool = False
) -> None:
    """Ask `resolve` for names that no `@job` has.  `names` returns those that it knows now: call `changed` after they
    have changed.  `last`: after all others, because it reads the database, which may be away."""
    if (resolve, names) not in _resolvers:
        _resolvers.insert(len(_resolvers) if last else 0, (resolve, names))
        changed()


def digest() -> str:
    """Return a short digest of what this process can run.  It changes when the process learns or forgets a name.

    Workers with the same digest run the same jobs: a job that one of them does not know, none of them knows."""
    global _digest
    state, made = _digest
    if state is not _state:
        state = _state
        text = "\n".join(
            [str(RECORD_FORMAT), *sorted({*_by_name, *_aliases}.union(*[names() for _, names in _resolvers]))]
        )
        made = sha256(text.encode()).hexdigest()[:12]
        _digest = state, made
    return made


def limits(*, of_all: bool = False) -> str:
    """Return how many jobs of each limited type may run at once: a line "name number" for each of its names, after a
    first line break.  `of_all`: also of types without a limit, whose number is 0; a type that is missing is unknown.

    A worker passes this with each claim, so that the limits of its own code count, and not those of the day when a job
    was enqueued."""
    global _limits
    settings, state, limited, made = _limits
    if state is not _state or settings is not get_settings():
        settings, state = get_settings(), _state
        # To resolve a name may register it, after which the limits are made again: once, and not at each claim.
        further = ((name, _by_name.get(name) or resolve(name)) for resolve, names in _resolvers for name in names())
        most = {name: each.max_concurrency or 0 for name, each in further if each is not None}
        most |= {name: each.max_concurrency or 0 for each in _by_name.values() for name in (each.name, *each.aliases)}
        made, limited = (
            "\n" + "".join(f"{name} {most[name]}\n" for name in sorted(some)) for some in (most, filter(most.get, most))
        )
        _limits = settings, state, limited, made
    return made if of_all else limited


def changed() -> None:
    """The names that this module or a function given to `add_resolver` returns have changed."""
    global _state
    _state = object()


def names() -> list[str]:
    """Return the names of all jobs, sorted, without aliases."""
    return sorted(_by_name)


def all_definitions() -> list[JobDefinition]:
    return [_by_name[name] for name in names()]
