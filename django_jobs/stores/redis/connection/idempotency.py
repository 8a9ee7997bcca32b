"""Idempotency keys: each call of a script that may have an effect carries the name of its sender and a number.

The server keeps the last answer of each sender in a queue.  It answers the same number again without doing anything
again, and it refuses a lower one: a request that was late on its way has no effect after a later call of its sender.
A sender ("channel") makes one call at a time and is used again afterwards, by any thread of its process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable

#: Unanswered calls that are remembered, the latest: callers who never ask again must not fill the memory.
MOST_UNANSWERED = 10_000

#: What a call is known by, should it be made again; asked for only when it matters.
Name = Callable[[], Hashable]


class Channel:
    """A sender to one queue: its name, and the number of its last call."""

    __slots__ = ("in_doubt", "name", "number", "queue")

    def __init__(self, queue: str) -> None:
        self.queue, self.name = queue, os.urandom(9).hex()
        self.number = 0
        #: a request of it may still be under way: the next call must leave its number, even if it has no effect.
        self.in_doubt = False

    @property
    def key(self) -> tuple[str, str]:
        """The arguments of the call: lua/lib/answers.lua reads them."""
        return self.name, f"{self.number}+" if self.in_doubt else str(self.number)


class Channels:
    """Those of one process: idle ones, and those whose last call was not answered, under that call's name."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._idle: dict[str, list[Channel]] = {}
        #: idle ones whose last request may still be under way: they come first, so that the next call voids it.
        self._doubtful: dict[str, list[Channel]] = {}
        self._unanswered: dict[Hashable, list[Channel]] = {}

    def begin(self, queue: str, name: Name | None = None) -> Channel:
        """The channel of a call: of this very call, if it was made before and not answered; else of a new one."""
        if self._pid != os.getpid():  # forked: these are the parent's, which asks again itself
            self._forget()
        if self._unanswered and name is not None:
            kept = self._unanswered.get(name())
            if kept:
                try:
                    return kept.pop()
                except IndexError:  # another thread was quicker
                    pass
        channel = (self._doubtful and _taken(self._doubtful, queue)) or _taken(self._idle, queue) or Channel(queue)
        channel.number += 1
        return channel

    def answered(self, channel: Channel) -> None:
        """Nothing of it is under way any more."""
        channel.in_doubt = False
        self._idle.setdefault(channel.queue, []).append(channel)

    def unanswered(self, channel: Channel, name: Name | None, *, refused: bool = False) -> None:
        """The call may have been made, or may be made later (not if the server has refused it).  Without a name nobody
        makes it again: the next call to the queue is the channel's, and voids it."""
        channel.in_doubt |= not refused
        if name is None:
            self._give_up(channel)
            return
        if len(self._unanswered) >= MOST_UNANSWERED:
            for given_up in self._unanswered.pop(next(iter(self._unanswered)), ()):
                self._give_up(given_up)
        self._unanswered.setdefault(name(), []).append(channel)

    def _give_up(self, channel: Channel) -> None:
        idle = self._doubtful if channel.in_doubt else self._idle
        idle.setdefault(channel.queue, []).append(channel)


def _taken(idle: dict[str, list[Channel]], queue: str) -> Channel | None:
    try:
        return idle[queue].pop()
    except (KeyError, IndexError):  # none, or another thread was quicker
        return None
