"""The parts of a test run that are going on.  The pytest plugin keeps them; it imports this without Django."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class IsolationScope:
    """A test, class or module of tests, or a whole run.  What is enqueued in it is seen inside of it only."""

    #: the store in memory, made when the first job is enqueued.
    store: Any = None

    def close(self) -> None:
        """Close the store of this scope, if it has one."""
        if self.store is not None:
            self.store.really_close()
            self.store = None


#: Outermost first.  Empty under Django's own test runner.
scopes: list[IsolationScope] = []


@contextmanager
def scope() -> Iterator[None]:
    """Begin a scope inside of those that are going on."""
    mine = IsolationScope()
    scopes.append(mine)
    try:
        yield
    finally:
        scopes.remove(mine)
        mine.close()
