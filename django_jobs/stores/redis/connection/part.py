"""What all parts of Store share: calling a script by its name, under an idempotency key.

Each call of a script that writes carries the name of its sender and a number.  For each place (a queue, a workflow, or
the fleet), the server keeps the last answer to each sender.  If the same number comes again, the server returns that
answer and does nothing.  It refuses a lower number: a delayed request has no effect after a later call of its sender.
A sender ("channel") makes one call at a time.  After that, any thread of its process may use it.

Long because a call and its number are one thing: who reads how a call is made reads how it is numbered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from django_jobs.exceptions import StoreError, StoreMisconfigured, StoreUnavailable
from django_jobs.stores.redis.connection.cluster import AnyTransport
from django_jobs.stores.redis.connection.errors import StoreLate
from django_jobs.stores.redis.connection.keys import FLEET, Keys
from django_jobs.stores.redis.connection.scripts import UNUSUAL, Argument, Script, load
from django_jobs.stores.values.options import StoreOptions

#: How many unanswered calls are remembered.  The oldest are forgotten because some callers never try again.
MOST_UNANSWERED = 10_000

T = TypeVar("T")

#: The place of calls on a workflow begins with this, and the workflow's id follows.
WORKFLOWS = "~"

#: Returns the name under which a call is found if it is made again.  It is called only when that name is needed.
Name = Callable[[], Hashable]

#: Queues per call of a script that runs one command for most queues.
LOOKED_INTO_AT_ONCE = 1000

#: Calls that are made in full after a case that was not usual: twice as many each time, until one is usual.  In vain,
#: the short form costs a fifth of a call.
IN_FULL, MOST_IN_FULL = 20, 1280

#: A call of a script that keeps its answer: the script, the queue, the arguments, the name.
OneCall = tuple[str, str, Sequence[Argument], Name | None]


class Part:
    """Base class of the parts; holds the transport, the key names and the options."""

    transport: AnyTransport
    keys: Keys
    options: StoreOptions
    #: The server has refused a script that only reads, because this user may use only plain reads.
    _scripts_refused = False

    def __init__(self, transport: AnyTransport, options: StoreOptions) -> None:
        self.transport = transport
        self.options = options
        self.keys = Keys(options.namespace)
        self._channels = Channels()
        self._given: dict[tuple[str, str, bool], tuple[Script, list[str]]] = {}
        #: (script, queue) → how many calls are made in full before its short form is tried again, and the next time
        self._in_full: dict[tuple[str, str], tuple[int, int]] = {}
        #: queue → when its name is to be stored again (monotonic).
        self._registered: dict[str, float] = {}

    def _script(self, name: str, queue: str, *, short: bool = False) -> tuple[Script, list[str]]:
        """Return the script, and the names of those keys of the queue that it uses."""
        try:
            return self._given[name, queue, short]
        except KeyError:
            script, names = load(name, short=short), self.keys.of(queue)
            given = self._given[name, queue, short] = script, [names[key] for key in script.keys]
            return given

    def _by_script(self, read: Callable[[], T]) -> T | None:
        """Return what scripts that only read have found; None if this user may use only plain reads."""
        if not self._scripts_refused:
            try:
                return read()
            except StoreMisconfigured:
                self._scripts_refused = True
        return None

    def _clock(self) -> int:
        return self.options.clock() if self.options.clock else 0

    def now(self) -> int:
        """Return the time of the store's clock, ms."""
        if self.options.clock:
            return self.options.clock()
        seconds, microseconds = self.transport.command("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    def _run(self, name: str, queue: str, *args: Argument, call: Name | None = None) -> Any:
        """Run a script in a queue, as `_call` does."""
        script, keys = self._script(name, queue)
        return self._call(script, keys, queue, args, call)

    def _run_shortly(self, name: str, queue: str, *args: Argument, call: Name | None = None) -> Any:
        """Do `_run` with the short form of a script, and in full if the case is not usual, or lately was not.

        Both are one call with one number: whichever of them comes late finds the number, and changes nothing."""
        left, then = self._in_full.get((name, queue), (0, IN_FULL))
        if left:
            self._in_full[name, queue] = left - 1, then
            return self._run(name, queue, *args, call=call)
        full = self._script(name, queue)

        def run(script: Script, keys: Sequence[str], args: tuple[Argument, ...]) -> Any:
            reply = self.transport.run(script, keys, args[: script.reads])
            if reply != UNUSUAL:
                self._in_full.pop((name, queue), None)
                return reply
            self._in_full[name, queue] = then, min(2 * then, MOST_IN_FULL)
            clock, channel, number, *rest = args
            # A copy of the first request may still be under way: the number must be kept, even if nothing is found.
            return self.transport.run(*full, (clock, channel, f"{str(number).rstrip('+')}+", *rest))

        return self._call(*self._script(name, queue, short=True), queue, args, call, run)

    def _run_over(self, name: str, queues: Sequence[str], *args: Argument, at_once: int = 20) -> list[Any]:
        """Run a script over several queues, `at_once` per call (on a Cluster one: a slot).  Returns all answers."""
        step = at_once if self.transport.spans else 1
        found: list[Any] = []
        for start in range(0, len(queues), step):
            some = queues[start : start + step]
            keys = [key for queue in some for key in self._script(name, queue)[1]]
            found += self._call(load(name), keys, some[0], args)
        return found

    def _run_in_fleet(self, name: str, keys: Sequence[str], *args: Argument) -> Any:
        """Run a script on keys of the fleet (`Keys.fleet`), as `_call` does."""
        return self._call(load(name), [self.keys.fleet(key) for key in keys], FLEET, args)

    def _call(
        self,
        script: Script,
        keys: Sequence[str],
        place: str,
        args: Sequence[Argument],
        call: Name | None = None,
        run: Callable[..., Any] | None = None,
    ) -> Any:
        """Run a script.  If it writes, number the call: ARGV is then clock, channel, number, args….

        `place`: where the answer is kept, in the slot of the keys: a queue, "~" and the id of a workflow, or FLEET.

        A call without an answer may have taken effect.  If you repeat it under the same name (`call`), it is sent with
        its old number, and gets the answer to the first call."""
        if not script.numbered:
            return self.transport.run(script, keys, (self._clock(), *args))
        if script.by_place:
            keys = [*keys, self.keys.answers(place)]
        channel = self._channels.begin(place, call)
        try:
            reply = (run or self.transport.run)(script, keys, (self._clock(), *channel.key, *args))
        except StoreLate:  # a person has written a higher number into the entry of this channel
            return self._call(script, keys[:-1] if script.by_place else keys, place, args, run=run)
        except BaseException as error:
            self._not_answered(channel, call, error)
            raise
        self._channels.answered(channel)
        return reply

    def _read_over(
        self, name: str, queues: Sequence[str], *args: Argument, at_once: int, width: int = 1, whole: bool = False
    ) -> dict[str, list[Any]]:
        """Run a script that only reads over several queues, `at_once` queues per call and server.  Returns `width`
        answers for each queue.

        The queues of a server that does not answer are left out.  Raises StoreUnavailable if no server answers, or,
        with `whole`, if one server does not."""
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
        """Return server → its queues, of these queues."""
        return {"": queues}

    def _read_on_one(self, name: str, queues: Sequence[str], args: Sequence[Argument]) -> Sequence[Any]:
        """Run the script once over queues of one server.  Returns the answers of all queues in one flat list."""
        keys = [key for queue in queues for key in self._script(name, queue)[1]]
        answers: Sequence[Any] = self.transport.run(load(name), keys, (self._clock(), *args))
        return answers

    def _run_ahead(self, name: str, queue: str, *args: Argument, call: Name) -> Callable[[], Any]:
        """Send the call of `_run`, and return a function that waits for its answer."""
        script, keys = self._script(name, queue)
        channel, pid = self._channels.begin(queue, call), os.getpid()
        try:
            answer = self.transport.run_ahead(script, keys, (self._clock(), *channel.key, *args))
        except StoreLate:
            reply = self._run(name, queue, *args)
            return lambda: reply
        except BaseException as error:
            self._not_answered(channel, call, error)
            raise

        def wait() -> Any:
            if pid != os.getpid():
                raise StoreUnavailable(
                    "The parent process sent this call before the fork; its reply goes there. Make the call again."
                )
            try:
                reply = answer()
            except StoreLate:
                return self._run(name, queue, *args)
            except BaseException as error:
                self._not_answered(channel, call, error)
                raise
            self._channels.answered(channel)
            return reply

        return wait

    def _not_answered(self, channel: Channel, call: Name | None, error: BaseException) -> None:
        refused = isinstance(error, StoreError) and not isinstance(error, StoreUnavailable)
        self._channels.unanswered(channel, call, refused=refused)

    def _run_each(self, calls: Sequence[OneCall]) -> list[Any]:
        """Do `_run` for each of these calls of scripts that write in a queue, in this order and in one round trip.

        If the server refuses a call, a StoreError takes the place of its answer.  If the answers are lost,
        StoreUnavailable is raised: then each of the calls may have taken effect."""
        if len(calls) == 1:  # the usual reservation of one id: `_run` costs half as much
            ((script, queue, args, name),) = calls
            try:
                return [self._run(script, queue, *args, call=name)]
            except StoreUnavailable:
                raise
            except StoreError as error:
                return [error]
        channels = [self._channels.begin(queue, name) for _, queue, _, name in calls]
        try:
            replies = self.transport.run_together(
                [
                    (*self._script(script, queue), (self._clock(), *channel.key, *args))
                    for (script, queue, args, _), channel in zip(calls, channels, strict=True)
                ]
            )
        except BaseException as error:
            for (*_, name), channel in zip(calls, channels, strict=True):
                self._not_answered(channel, name, error)
            raise
        for i, ((script, queue, args, name), channel) in enumerate(zip(calls, channels, strict=True)):
            if isinstance(replies[i], StoreLate):  # as in _call
                try:
                    replies[i] = self._run(script, queue, *args)
                except StoreError as error:
                    replies[i] = error
            elif isinstance(replies[i], StoreError):
                self._channels.unanswered(channel, name, refused=True)
            else:
                self._channels.answered(channel)
        return replies

    @property
    def _archiving(self) -> str:
        """The number of jobs that the archive's backlog may have; "" if nothing is archived."""
        return str(self.options.backlog) if self.options.archive else ""


# -- idempotency keys --------------------------------------------------------------


class Channel:
    """A sender of calls: its name, the place of its last call, and the number of that call."""

    __slots__ = ("in_doubt", "name", "number", "place", "shelf")

    def __init__(self, shelf: str) -> None:
        self.place = self.shelf = shelf  # when idle, it is kept with the others of its queue, or of WORKFLOWS
        self.name = os.urandom(9).hex()
        self.number = 0
        #: An earlier request may still be under way: the next call must store its number, even if it has no effect.
        self.in_doubt = False

    @property
    def key(self) -> tuple[str, str]:
        """The arguments that lua/lib/calls/answers.lua reads."""
        return self.name, f"{self.number}+" if self.in_doubt else str(self.number)


class Channels:
    """All channels of one process: the idle ones, and those that wait for an unanswered call to be repeated.  Workflows
    share channels, because they come and go.  A queue has its own: few channels, few answers to keep."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        #: by place, those of workflows under WORKFLOWS
        self._idle: dict[str, list[Channel]] = {}
        #: by place, those whose last request may still be under way.  They are used first: that voids the request
        self._doubtful: dict[str, list[Channel]] = {}
        #: The channels of unanswered calls, by the name of the call.
        self._unanswered: dict[Hashable, list[Channel]] = {}
        # Set last: a thread that reads it must not find channels of the parent process, which uses the same numbers.
        self._pid = os.getpid()

    def begin(self, place: str, name: Name | None = None) -> Channel:
        """Return the channel for a call.  If the same call was made before and not answered, it gets the same channel
        and number."""
        if self._pid != os.getpid():  # forked: these channels belong to the parent, which repeats its calls itself
            self._forget()
        if self._unanswered and name is not None:
            kept = self._unanswered.get(name())
            if kept:
                try:
                    return kept.pop()
                except IndexError:  # another thread was faster
                    pass
        shelf = WORKFLOWS if place[0] == WORKFLOWS else place
        channel = (self._doubtful and _taken(self._doubtful, place)) or _taken(self._idle, shelf) or Channel(shelf)
        channel.place = place
        channel.number += 1
        return channel

    def answered(self, channel: Channel) -> None:
        """Take back the channel of a call that was answered: none of its requests is under way any more."""
        channel.in_doubt = False
        self._idle.setdefault(channel.shelf, []).append(channel)

    def unanswered(self, channel: Channel, name: Name | None, *, refused: bool = False) -> None:
        """Keep the channel of a call that was not answered: unless the server refused the call, it may yet take effect.

        A call without a name is repeated by nobody: the next call of the channel voids it."""
        channel.in_doubt |= not refused
        if name is None:
            self._give_up(channel)
            return
        if len(self._unanswered) >= MOST_UNANSWERED:
            oldest = next(iter(self._unanswered.copy()))  # of a copy, which other threads do not change meanwhile
            for given_up in self._unanswered.pop(oldest, ()):
                self._give_up(given_up)
        self._unanswered.setdefault(name(), []).append(channel)

    def _give_up(self, channel: Channel) -> None:
        if not channel.in_doubt:
            self._idle.setdefault(channel.shelf, []).append(channel)
            return
        if len(self._doubtful) >= MOST_UNANSWERED:  # places of workflows, which come and go
            self._doubtful.pop(next(iter(self._doubtful.copy())), None)
        self._doubtful.setdefault(channel.place, []).append(channel)


def _taken(idle: dict[str, list[Channel]], place: str) -> Channel | None:
    try:
        return idle[place].pop()
    except (KeyError, IndexError):  # none is left, or another thread was faster
        return None
