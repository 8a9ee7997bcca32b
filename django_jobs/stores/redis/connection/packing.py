"""Puts a call of a script into the bytes that are sent to the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache

import redis

from django_jobs.stores.redis.connection.replies import Argument
from django_jobs.stores.redis.connection.scripts import Script

#: Packs a command; None: redis-py does it.
pack_command: Callable[[tuple[Argument, ...]], bytes] | None = None
with suppress(ImportError):
    from hiredis import pack_command  # type: ignore[assignment]  # its types say a tuple of one

#: The beginnings of this many calls are kept, about 1.5 kB each.  Calls with more keys than MOST_KEYS, over many queues
#: at once, are too rare and too long to be kept.
KEPT = 512
MOST_KEYS = 64


def packed(connection: redis.Connection, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> bytes:
    """Return EVALSHA with this script, these keys and these arguments, as it is sent to the server.

    Up to the last key it is the same for each call with the same keys, and kept: packing 40 keys again costs 25 µs, a
    quarter of the processor time of a claim."""
    if pack_command is None:
        return b"".join(connection.pack_command(b"EVALSHA", script.sha, len(keys), *keys, *args))
    rest = pack_command(tuple(args))
    begin = _beginning if len(keys) <= MOST_KEYS else _beginning.__wrapped__
    return b"*%d\r\n%b%b" % (3 + len(keys) + len(args), begin(script.sha, tuple(keys)), _without_count(rest))


def packed_whole(connection: redis.Connection, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> bytes:
    """Return EVAL with the whole script, these keys and these arguments: a server that does not know it keeps it."""
    return b"".join(connection.pack_command(b"EVAL", script.source, len(keys), *keys, *args))


@lru_cache(KEPT)
def _beginning(sha: bytes, keys: tuple[str, ...]) -> bytes:
    assert pack_command is not None
    return _without_count(pack_command((b"EVALSHA", sha, len(keys), *keys)))


def _without_count(command: bytes) -> bytes:
    """Return a packed command without its first line, the number of its arguments."""
    return command[command.index(b"\n") + 1 :]
