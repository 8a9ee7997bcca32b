"""How much goes in one call: so many jobs, and so many bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

#: No call moves more jobs than this (Lua's unpack, and the time others wait meanwhile).
MAX_BATCH = 1000
#: Bytes of records or results in one call, and in one answer, but for the last job, which may go beyond: a server, a
#: client and the buffers between them hold a few times that, and others wait a few ms.  As in lua/lib/bytes.lua.
MAX_BYTES = 4 * 1024 * 1024
#: Jobs that are read at first where their sizes are not known, and how many times as many each time after that.
FIRST_READ, READ_MORE = 16, 8

T = TypeVar("T")


def in_batches(items: Iterable[T], size: Callable[[T], int], most: int = MAX_BATCH) -> Iterator[list[T]]:
    """All items in their order, in lists of at most `most` and of few more than MAX_BYTES; `size(item)` in bytes."""
    batch: list[T] = []
    total = 0
    for item in items:
        if batch and (len(batch) >= most or total >= MAX_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch
