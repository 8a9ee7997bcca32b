"""What all parts of Store share: calling a script for a queue by its name, under an idempotency key.

Each call of a script that may have an effect carries the name of its sender and a number.  The server keeps the last
answer of each sender in a queue.  If the same number comes again, it returns that answer and does nothing; it refuses a
lower number, so that a request that was delayed has no effect after a later call of its sender.  A sender ("channel")
makes one call at a time and is then reused by any thread of its process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import islice
from typing import Any

from django_jobs.exceptions import StoreError, StoreUnavailable
from django_jobs.stores.redis.connection.cluster import AnyTransport
from django_jobs.stores.redis.connection.errors import StoreLate
from django_jobs.stores.redis.connection.keys import Keys
from django_jobs.stores.redis.connection.replies import Argument
from django_jobs.stores.redis.connection.scripts import Script, load
from django_jobs.stores.values.options import StoreOptions

#: How many unanswered calls are remembered, the latest ones: callers that never try again must not fill the memory.
MOST_UNANSWERED = 10_000

#: Queues in one call, which runs one command for most of them.
LOOKED_INTO_AT_ONCE = 1000

#: Identifies a call if it is made again; called only when needed.
Name = Callable[[], Hashable]


#: A call of a script that keeps its answer: the script, the queue, the arguments, the name.
OneCall = tuple[str, str, Sequence[Argument], Name]

#: Makes some calls by one script: takes their channels' arguments, returns their answers; None: nothing was done.
InOne = Callable[[Sequence[tuple[str, str]]], list[Any] | None]


class Part:
    """Base class of the parts; holds the transport, the key names and the options."""

    transport: AnyTransport
    keys: Keys
    options: StoreOptions
    #: the server has refused a script that reads, because the user may only use plain reads.
    _scripts_refused = False

    def __init__(self, transport: AnyTransport, options: StoreOptions) -> None:
        self.transport = transport
        self.options = options
        self.keys = Keys(options.namespace)
        self._channels = Channels()
        self._given: dict[tuple[str, str], tuple[Script, list[str]]] = {}

    def _script(self, name: str, queue: str) -> tuple[Script, list[str]]:
        """Return the script, and the names of the queue's keys that it gets."""
        try:
            return self._given[name, queue]
        except KeyError:
            script, names = load(name), self.keys.of(queue)
            given = self._given[name, queue] = script, [names[key] for key in script.keys]
            return given

    def _clock(self) -> int:
        return self.options.clock() if self.options.clock else 0

    def now(self) -> int:
        """Return the time of the store's clock, ms."""
        if self.options.clock:
            return self.options.clock()
        seconds, microseconds = self.transport.command("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    def _run(self, name: str, queue: str, *args: Argument) -> Any:
        """Run a script that may be sent twice unchanged: ARGV is clock, args…"""
        script, keys = self._script(name, queue)
        return self.transport.run(script, keys, (self._clock(), *args))

    def _run_over(self, name: str, queues: Sequence[str], *args: Argument, at_once: int = 20) -> list[Any]:
        """Run a script over several queues, `at_once` queues per call; on a cluster one queue per call, because a call
        stays within one slot.  Returns the concatenated answers."""
        step = at_once if self.transport.spans else 1
        found: list[Any] = []
        for start in range(0, len(queues), step):
            given = [self._script(name, queue) for queue in queues[start : start + step]]
            keys = [key for _, names in given for key in names]
            found += self.transport.run(given[0][0], keys, (self._clock(), *args))
        return found

    def _read_over(
        self, name: str, queues: Sequence[str], *args: Argument, at_once: int, width: int = 1, whole: bool = False
    ) -> dict[str, list[Any]]:
        """Run a script that only reads over several queues, `at_once` queues per call and server.  Returns for each
        queue its `width` answers.

        The queues of servers that do not answer are left out.  Raises StoreUnavailable if no server answers; with
        `whole`, if one does not."""
        found: dict[str, list[Any]] = {}
        silent: StoreUnavailable | None = None
        for group in self._by_server(queues).values():
            try:
                for start in range(0, len(group), at_once):
                    some = group[start : start + at_once]
                    flat = self._read_on_one(name, some, args)
                    found |= {queue: list(flat[n * width : (n + 1) * width]) for n, queue in enumerate(some)}
            except StoreUnavailable as error:
                silent = error
        if silent is not None and (whole or not found):
            raise silent
        return found

    def _by_server(self, queues: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return server → which of these queues it has."""
        return {"": queues}

    def _read_on_one(self, name: str, queues: Sequence[str], args: Sequence[Argument]) -> Sequence[Any]:
        """Run the script once over queues of one server.  Returns the answers of all, flat."""
        keys = [key for queue in queues for key in self._script(name, queue)[1]]
        answers: Sequence[Any] = self.transport.run(load(name), keys, (self._clock(), *args))
        return answers

    def _run_once(self, name: str, queue: str, *args: Argument, call: Name | None = None) -> Any:
        """Run a script that keeps its answer: ARGV is clock, channel, number, args…

        A call that was not answered may have been carried out.  If it is repeated under the same name (`call`), it is
        sent under its old number, and gets the answer of the first call."""
        script, keys = self._script(name, queue)
        channel = self._channels.begin(queue, call)
        try:
            reply = self.transport.run(script, keys, (self._clock(), *channel.key, *args))
        except StoreLate:  # the kept entry of this channel is not from this process: a person wrote it
            return self._run_once(name, queue, *args)
        except BaseException as error:
            self._not_answered(channel, call, error)
            raise
        self._channels.answered(channel)
        return reply

    def _run_once_ahead(self, name: str, queue: str, *args: Argument, call: Name) -> Callable[[], Any]:
        """Send what `_run_once` would send, and return a function that waits for the answer as `_run_once` does."""
        script, keys = self._script(name, queue)
        channel, pid = self._channels.begin(queue, call), os.getpid()
        try:
            answer = self.transport.run_ahead(script, keys, (self._clock(), *channel.key, *args))
        except StoreLate:
            reply = self._run_once(name, queue, *args)
            return lambda: reply
        except BaseException as error:
            self._not_answered(channel, call, error)
            raise

        def wait() -> Any:
            if pid != os.getpid():  # its reply goes to the parent, and its channel is the parent's
                raise StoreUnavailable("This call was sent by the process that this one is a copy of.")
            try:
                reply = answer()
            except StoreLate:
                return self._run_once(name, queue, *args)
            except BaseException as error:
                self._not_answered(channel, call, error)
                raise
            self._channels.answered(channel)
            return reply

        return wait

    def _not_answered(self, channel: Channel, call: Name | None, error: BaseException) -> None:
        refused = isinstance(error, StoreError) and not isinstance(error, StoreUnavailable)
        self._channels.unanswered(channel, call, refused=refused)

    def _run_each_once(self, calls: Sequence[OneCall], in_one: InOne | None = None) -> list[Any]:
        """Do `_run_once` for each call, in this order and in one round trip.

        In the place of an answer is the StoreError with which the server refused the call.  If one was not answered,
        StoreUnavailable is raised: then each of them may have been carried out.

        `in_one`: tries to make all of these calls by one script, which keeps the same answers."""
        channels = [self._channels.begin(queue, name) for _, queue, _, name in calls]
        try:
            replies = (in_one and in_one([channel.key for channel in channels])) or self.transport.run_together(
                [
                    (*self._script(script, queue), (self._clock(), *channel.key, *args))
                    for (script, queue, args, _), channel in zip(calls, channels, strict=True)
                ]
            )
        except BaseException as error:
            for (_, _, _, name), channel in zip(calls, channels, strict=True):
                self._not_answered(channel, name, error)
            raise
        for (_, _, _, name), channel, reply in zip(calls, channels, replies, strict=True):
            if not isinstance(reply, StoreError):
                self._channels.answered(channel)
            elif not isinstance(reply, StoreLate):  # as in _run_once
                self._channels.unanswered(channel, name, refused=True)
        return replies

    @property
    def _archiving(self) -> str:
        """How many jobs the outbox may hold; "" if nothing is archived."""
        return str(self.options.backlog) if self.options.archive else ""


# -- idempotency keys --------------------------------------------------------------


class Channel:
    """A sender to one queue: its name, and the number of its last call."""

    __slots__ = ("in_doubt", "name", "number", "queue")

    def __init__(self, queue: str) -> None:
        self.queue, self.name = queue, os.urandom(9).hex()
        self.number = 0
        #: a request of it may still be under way: the next call must store its number, even if it has no effect.
        self.in_doubt = False

    @property
    def key(self) -> tuple[str, str]:
        """The channel's arguments for the call: lua/lib/answers.lua reads them."""
        return self.name, f"{self.number}+" if self.in_doubt else str(self.number)


class Channels:
    """All channels of one process: idle ones, and those whose last call was not answered, by the name of that call."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._idle: dict[str, list[Channel]] = {}
        #: idle channels whose last request may still be under way: they are used first, so that the next call voids
        #: that request.
        self._doubtful: dict[str, list[Channel]] = {}
        self._unanswered: dict[Hashable, list[Channel]] = {}
        # Last: a thread that reads this process's id must not find channels of the parent process.  The parent uses
        # the same numbers, and the server would answer the call with the answer to the parent's.
        self._pid = os.getpid()

    def begin(self, queue: str, name: Name | None = None) -> Channel:
        """Return the channel for a call: the channel of the same call if that was made before and not answered,
        otherwise another."""
        if self._pid != os.getpid():  # forked: these channels are the parent's, which repeats its calls itself
            self._forget()
        if self._unanswered and name is not None:
            kept = self._unanswered.get(name())
            if kept:
                try:
                    return kept.pop()
                except IndexError:  # another thread was faster
                    pass
        channel = (self._doubtful and _taken(self._doubtful, queue)) or _taken(self._idle, queue) or Channel(queue)
        channel.number += 1
        return channel

    def answered(self, channel: Channel) -> None:
        """The call was answered: no request of the channel is under way any more."""
        channel.in_doubt = False
        self._idle.setdefault(channel.queue, []).append(channel)

    def unanswered(self, channel: Channel, name: Name | None, *, refused: bool = False) -> None:
        """The call was not answered: it may have been carried out, or may be later (not if the server refused it).
        Without a name, no caller repeats it: the channel's next call to the queue voids it."""
        channel.in_doubt |= not refused
        if name is None:
            self._give_up(channel)
            return
        if len(self._unanswered) >= MOST_UNANSWERED:
            # A copy, which other threads do not change while it is iterated.
            for oldest in islice(self._unanswered.copy(), 1):
                for given_up in self._unanswered.pop(oldest, ()):
                    self._give_up(given_up)
        self._unanswered.setdefault(name(), []).append(channel)

    def _give_up(self, channel: Channel) -> None:
        idle = self._doubtful if channel.in_doubt else self._idle
        idle.setdefault(channel.queue, []).append(channel)


def _taken(idle: dict[str, list[Channel]], queue: str) -> Channel | None:
    try:
        return idle[queue].pop()
    except (KeyError, IndexError):  # none is left, or another thread was faster
        return None
