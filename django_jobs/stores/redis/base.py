"""What all parts of RedisStore share: calling a script for a queue by its name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from django_jobs.core.values import Attempt
from django_jobs.exceptions import StoreError, StoreUnavailable
from django_jobs.stores.contract.running import MAX_BATCH
from django_jobs.stores.contract.store import StoreOptions
from django_jobs.stores.redis.connection.errors import StoreLate
from django_jobs.stores.redis.connection.idempotency import Channels, Name
from django_jobs.stores.redis.connection.scripts import Script, load
from django_jobs.stores.redis.connection.transport import AnyTransport, Argument
from django_jobs.stores.redis.keys import Keys

#: Characters.  A longer error text or traceback is cut when it enters the log (workers cut earlier).
LONGEST_TEXT = 16_384


class RedisPart:
    """Base class of the parts; holds the transport, the key names and the options."""

    transport: AnyTransport
    keys: Keys
    options: StoreOptions

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
        if self.options.clock:
            return self.options.clock()
        seconds, microseconds = self.transport.command("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    def _run(self, name: str, queue: str, *args: Argument) -> Any:
        """Run a script that may be sent twice unchanged: ARGV is clock, args…"""
        script, keys = self._script(name, queue)
        return self.transport.run(script, keys, (self._clock(), *args))

    def _run_over(self, name: str, queues: Sequence[str], *args: Argument, at_once: int = 20) -> list[Any]:
        """Run a read-only script over several queues, `at_once` queues per call; on a cluster one queue per call,
        because a call stays within one slot.  Returns the concatenated answers."""
        step = at_once if self.transport.spans else 1
        found: list[Any] = []
        for start in range(0, len(queues), step):
            given = [self._script(name, queue) for queue in queues[start : start + step]]
            keys = [key for _, names in given for key in names]
            found += self.transport.run(given[0][0], keys, (self._clock(), *args))
        return found

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
            refused = isinstance(error, StoreError) and not isinstance(error, StoreUnavailable)
            self._channels.unanswered(channel, call, refused=refused)
            raise
        self._channels.answered(channel)
        return reply

    @property
    def _archiving(self) -> str:
        return "archive" if self.options.archive else ""


def attempt_line(attempt: Attempt) -> str:
    """Return one line of the attempts log; the script puts its own time in front."""
    entry = {k: v[:LONGEST_TEXT] if isinstance(v, str) else v for k, v in attempt._asdict().items() if k != "at"}
    return json.dumps(entry, separators=(",", ":"))


def unsigned_line(outcome: str, error: str) -> str:
    """Return the line of an attempt that its worker did not report: the script adds its number and its worker."""
    return json.dumps({"outcome": outcome, "error": error[:LONGEST_TEXT]})


def read_attempts(text: bytes | None) -> tuple[Attempt, ...]:
    """Return the attempts log as values; a line that cannot be read stays visible as text."""
    return tuple(_read_attempt(line) for line in (text or b"").split(b"\n") if line)


def _read_attempt(line: bytes) -> Attempt:
    try:
        return Attempt(**json.loads(line.decode(errors="replace")))
    except (ValueError, TypeError):
        return Attempt(0, "corrupt", 0, error=line.decode(errors="replace")[:LONGEST_TEXT])


def read_tries(text: bytes | None) -> tuple[int, int, int]:
    """Return failures, crashes, parked since (ms)."""
    if not text:
        return 0, 0, 0
    try:
        failures, crashes, parked = text.split(b":")
        return int(failures), int(crashes), int(parked)
    except ValueError:
        return 0, 0, 0


def is_suspect(tries: bytes) -> bool:
    """Tell whether a worker that held the job died with all its processes (lua/lib/log.lua)."""
    return len(crashes := tries.split(b":")[1:2]) == 1 and len(crashes[0]) > 1 and crashes[0].startswith(b"0")


def read_number(text: bytes | str | float) -> int:
    """Return a count or a time; 0 if another program has stored something else."""
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        return 0


def read_claim(text: bytes | None) -> tuple[int, int, str]:
    """Return token, claimed at (ms), holder."""
    try:
        token, claimed, holder = (text or b"").split(b":", 2)
        return int(token), int(claimed), holder.decode(errors="replace")
    except ValueError:
        return 0, 0, ""


def read_holdings(lines: bytes) -> Iterator[tuple[int, int]]:
    """Yield token and number of claims of each line."""
    for line in lines.split():
        token, _, n = line.partition(b"=")
        if token.isdigit() and n.isdigit():
            yield int(token), int(n)


def chunks(values: Sequence[Any], size: int = MAX_BATCH) -> Iterator[Sequence[Any]]:
    """Yield all values, `size` at a time."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def texts(values: Sequence[bytes]) -> list[str]:
    """Decode replies that are ids or words."""
    return [value.decode(errors="replace") for value in values]
