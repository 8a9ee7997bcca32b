"""How much one call moves: a limit in jobs and a limit in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

#: No call moves more jobs than this (because of Lua's unpack, and because other callers wait meanwhile).
MAX_BATCH = 1000
#: Bytes of records or results in one call, and in one answer; only the last job may exceed it.  A server, a client and
#: the buffers between them hold a few times that, and other callers wait a few ms.  The same as in lib/calls/bytes.lua.
MAX_BYTES = 4 * 1024 * 1024
#: Bytes of records in one call that adds jobs; only the last job may exceed it.  A server answers nobody else while it
#: stores them: 4 MiB of records of 4 KB took it 40 ms.
ADDED_BYTES = 1024 * 1024
#: How many attempts that did not succeed one call ends, and bytes of their logs: each costs the server several times as
#: much as a success, and 2.4 MB of tracebacks took it 22 ms.
SETTLED_AT_ONCE, SETTLED_BYTES = 200, 1024 * 1024
#: Lines in the attempts log of a job; the oldest go.  The same as in lua/lib/jobs/log.lua.
MAX_LOG = 25
#: If the sizes of jobs are not known: how many are read first, and the factor for each further read.
FIRST_READ, READ_MORE = 16, 8

K = TypeVar("K")
T = TypeVar("T")


def chunks(values: Sequence[T], size: int = MAX_BATCH) -> Iterator[Sequence[T]]:
    """Yield all values, `size` at a time."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Return the second values of these pairs by the first, both in the order in which they come."""
    found: dict[K, list[T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def in_batches(
    items: Iterable[T], size: Callable[[T], int], most: int = MAX_BATCH, most_bytes: int = MAX_BYTES
) -> Iterator[list[T]]:
    """Yield all items in order, in lists of at most `most` items; only the last item of a list may exceed `most_bytes`.
    `size(item)` is in bytes."""
    taken = list(items)
    sizes = [size(item) for item in taken]
    if taken and len(taken) <= most and sum(sizes) <= most_bytes:  # most of the time
        yield taken
        return
    batch: list[T] = []
    total = 0
    for item, bytes_of_item in zip(taken, sizes, strict=True):
        if batch and (len(batch) >= most or total >= most_bytes):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += bytes_of_item
    if batch:
        yield batch
