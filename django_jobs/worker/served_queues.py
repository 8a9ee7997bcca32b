"""The queues that a worker claims from: one list for all its processes, which grows while they run.

Where QUEUES has patterns, new queues appear at any time.  The parent looks for them in the store and appends their
names to memory that it shares with all processes that it forks; these read them there when they next ask.  A queue
keeps its number in the list.  None is removed before the worker ends: an empty queue costs it no call of its own.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from django_jobs.conf import QueueSettings
from django_jobs.conf.queues import covers

logger = logging.getLogger("django_jobs.worker")

#: Queues that one worker finds by patterns at most: that many are checked in one call of a script.
MOST_FOUND = 1000
#: Bytes for their names: each has up to 100 characters, and a separator.
_TEXT = MOST_FOUND * (4 * 100 + 1)
_HEAD = 8


class HasQueues(Protocol):
    """The part of the store that is needed here."""

    def queues(self) -> list[str]: ...


class ServedQueues(Sequence[QueueSettings]):
    """The queues with their settings, in the order of their numbers."""

    def __init__(
        self,
        queues: Iterable[QueueSettings],
        patterns: Sequence[str] = (),
        excluded: Sequence[str] = (),
        settings_of: Callable[[str], QueueSettings | None] = QueueSettings,
    ) -> None:
        """`patterns`: serve every queue, too, for which one of these stands and `settings_of` gives settings, except
        those for which one of `excluded`, names and patterns, stands."""
        self._given = tuple(queues)
        self.patterns, self.excluded, self._settings_of = tuple(patterns), tuple(excluded), settings_of
        #: the highest number of queues that there may be.
        self.most = len(self._given) + (MOST_FOUND if patterns else 0)
        self.names = QueueNames(self)
        self._memory = memoryview(mmap.mmap(-1, _HEAD + _TEXT)) if patterns else memoryview(bytearray(_HEAD))
        #: how many bytes of names there are.
        self._used = self._memory[:_HEAD].cast("Q")
        #: how many of them were read, and the queues as of then: one value, because threads and the parent's timer may
        #: read at any line of `all`.
        self._known = 0, self._given
        self._is_full = False

    def look(self, store: HasQueues) -> bool:
        """Find the queues that are new in the store; only the parent does this.  Returns whether there are any.  Raises
        StoreError."""
        if not self.patterns:
            return False
        known = set(self.names)
        found = sorted(name for name in set(store.queues()) - known if self.serves(name))
        room = self.most - len(known)
        if len(found) > room and not self._is_full:
            self._is_full = True
            logger.error(
                "There are more queues than this worker can serve (%d): it leaves %d of them to other workers, as well "
                "as all that are new. Start workers with --queues, each for a part of them.",
                *(self.most, len(found) - room),
            )
        text = "".join(f"{name}\n" for name in found[:room]).encode()
        begin = _HEAD + self._used[0]
        self._memory[begin : begin + len(text)] = text
        self._used[0] += len(text)  # last: who reads it finds the names
        return bool(text)

    def serves(self, name: str) -> bool:
        """Does the worker take a queue of that name by a pattern?"""
        if any(covers(each, name) for each in self.excluded):
            return False
        return any(covers(each, name) for each in self.patterns) and self._settings_of(name) is not None

    @property
    def written(self) -> list[str]:
        """The names and patterns that the options of the worker stand for."""
        return [*(each.name for each in self._given), *self.patterns]

    @property
    def open_patterns(self) -> tuple[str, ...]:
        """The patterns by which it takes further queues: none if it serves as many as it can."""
        return () if self._is_full else self.patterns

    def all(self) -> tuple[QueueSettings, ...]:
        """Return the queues that there are now."""
        read, queues = self._known
        used = self._used[0]
        if used != read:
            names = bytes(self._memory[_HEAD + read : _HEAD + used]).decode().split("\n")[:-1]
            queues += tuple(self._settings_of(name) or QueueSettings(name) for name in names)
            self._known = used, queues
        return queues

    def __getitem__(self, key: Any) -> Any:
        return self.all()[key]

    def __len__(self) -> int:
        return len(self.all())

    def __iter__(self) -> Iterator[QueueSettings]:
        return iter(self.all())


class QueueNames(Sequence[str]):
    """The names of these queues."""

    def __init__(self, queues: ServedQueues) -> None:
        self._queues = queues

    def __getitem__(self, key: Any) -> Any:
        found = self._queues[key]
        return [each.name for each in found] if isinstance(key, slice) else found.name

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[str]:
        return iter([each.name for each in self._queues.all()])
