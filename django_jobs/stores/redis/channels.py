"""Names of call sequences: a script that remembers its answer keeps the last one of each.

A name is used by one thread at a time and handed on when that ends: servers that start a thread for each request would
otherwise leave an answer behind with each.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Hashable

#: Unanswered calls that are remembered, the latest: callers who never ask again must not fill the memory.
MOST_UNANSWERED = 10_000


class Channel:
    """A name and the number of its last call; given back when its thread ends."""

    def __init__(self, channels: Channels, name: str, calls: int) -> None:
        self._channels, self.name, self.calls = channels, name, calls
        self._pid = os.getpid()

    def next(self) -> tuple[str, int]:
        """The name and the number of the next call."""
        self.calls += 1
        return self.name, self.calls

    def __del__(self) -> None:
        if self._pid == os.getpid():  # else it is the parent's
            self._channels.give_back(self.name, self.calls)


class Channels:
    """Those of one process that nobody uses now."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._free: deque[tuple[str, int]] = deque()

    def take(self) -> Channel:
        """One that nobody else has."""
        if self._pid != os.getpid():  # forked: these are the parent's
            self._pid, self._free = os.getpid(), deque()
        try:
            name, calls = self._free.pop()
        except IndexError:
            name, calls = os.urandom(9).hex(), 0
        return Channel(self, name, calls)

    def give_back(self, name: str, calls: int) -> None:
        """Its thread is done with it."""
        self._free.append((name, calls))


class Unanswered:
    """Calls of one process that may have been made though no answer came, each with the channel it went out on.

    Made again, however late and by whatever thread, such a call goes out under the number it had: its script then tells
    what came of it.  Until then nobody else uses its channel, where a later answer would take the place of its own.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._channels = Channels()
        self._kept: dict[Hashable, Channel] = {}

    def begin(self, call: Hashable) -> Channel:
        """The channel of a call, whose `calls` is its number."""
        if self._pid != os.getpid():  # forked: these are the parent's, which asks again itself
            self._pid, self._kept = os.getpid(), {}
        channel = self._kept.pop(call, None) if self._kept else None
        if channel is None:
            channel = self._channels.take()
            channel.next()
        return channel

    def keep(self, call: Hashable, channel: Channel) -> None:
        """No answer came."""
        if len(self._kept) >= MOST_UNANSWERED:
            self._kept.pop(next(iter(self._kept)), None)
        self._kept[call] = channel
