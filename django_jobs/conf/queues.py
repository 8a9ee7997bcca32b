"""QUEUES: which queues there may be, and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from django_jobs.conf.values import name_part


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """One entry of QUEUES."""

    name: str
    #: weight, 1–100000: the share of claims among queues that have work (or the rank, with QUEUE_ORDER "strict").
    priority: int = 1
    #: maximum number of running jobs in the whole fleet; 0 = no limit.
    max_concurrency: int = 0
    #: maximum number of queued and blocked jobs; 0 = no limit.
    max_length: int = 0
    #: "reject" | "block"; inside the package also "fill": take the jobs that there is room for, in order.
    on_full: str = "reject"


class Queues(dict[str, QueueSettings]):
    """Every queue that jobs may use → its settings."""

    #: pattern → the settings of the queues that it stands for.
    patterns: Mapping[str, QueueSettings] = MappingProxyType({})

    @property
    def written(self) -> list[str]:
        """The names and the patterns, for errors."""
        return [*self, *self.patterns]


class PatternQueues(Queues):
    """QUEUES with keys that end in `*`: `in`, `[]` and `get` answer for each name that begins with the rest of one.

    An exact key wins, then the longest pattern.  Iteration gives the exact names only: the store knows which others
    exist (`browse.queue_names`)."""

    def __init__(self, entries: Mapping[str, QueueSettings]) -> None:
        super().__init__({name: each for name, each in entries.items() if not is_pattern(name)})
        self.patterns = {name: entries[name] for name in sorted(filter(is_pattern, entries), key=len, reverse=True)}

    def __missing__(self, name: Any) -> QueueSettings:
        for pattern, settings in self.patterns.items():
            if isinstance(name, str) and covers(pattern, name):
                return replace(settings, name=name)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self.get(name) is not None

    def get(self, name: Any, default: Any = None) -> Any:
        """As for every mapping, and for the patterns."""
        try:
            return self[name]
        except KeyError:
            return default


def queues_of(entries: Mapping[str, QueueSettings]) -> Queues:
    """Return what QUEUES says."""
    return PatternQueues(entries) if any(map(is_pattern, entries)) else Queues(entries)


def is_pattern(name: Any) -> bool:
    """Return whether a key of QUEUES stands for all names with its prefix."""
    return isinstance(name, str) and name.endswith("*")


def covers(key: Any, name: str) -> bool:
    """Return whether a key of QUEUES, or an item of a list of queues, stands for the queue of that name."""
    return name.startswith(key[:-1]) and queue_name(name) is None if is_pattern(key) else bool(key == name)


def queue_name(value: Any) -> str | None:
    """Return what is wrong with the name of a queue: the remedy; None for a good one."""
    if isinstance(value, str) and "*" in value:
        return (
            "Use * only as the last character of a key of QUEUES, as in 'tenant-*': it stands for the rest of a name."
        )
    return name_part(value)


def queue_key(value: Any) -> str | None:
    """The same for a key of QUEUES, which may be a pattern."""
    return None if value == "*" else queue_name(value[:-1] if is_pattern(value) else value)


def queue_settings(name: str, options: Mapping[str, Any]) -> QueueSettings:
    """Return one entry of QUEUES with its defaults."""
    return QueueSettings(
        name,
        priority=options.get("PRIORITY", 1),
        max_concurrency=options.get("MAX_CONCURRENCY", 0),
        max_length=options.get("MAX_LENGTH", 0),
        on_full=options.get("ON_FULL", "reject"),
    )
