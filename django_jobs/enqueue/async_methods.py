"""Async twins of every call that enqueues: `await send_receipt.aenqueue(7)`.

They run on Django's thread for sync code, so they see a transaction that was opened there and wait for its commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ParamSpec

from asgiref.sync import sync_to_async

from django_jobs.enqueue.handle import JobHandle
from django_jobs.enqueue.methods import Calls, Delay

P = ParamSpec("P")


class AsyncCalls(Calls[P]):
    """The calls of Calls with `a` before the name: the same, awaited."""

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Async twin of `enqueue`."""
        return await sync_to_async(self.enqueue)(*args, **kwargs)

    async def aenqueue_in(self, delay: Delay, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Async twin of `enqueue_in`."""
        return await sync_to_async(self.enqueue_in)(delay, *args, **kwargs)

    async def aenqueue_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Async twin of `enqueue_at`."""
        return await sync_to_async(self.enqueue_at)(when, *args, **kwargs)

    async def atry_enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle | None:
        """Async twin of `try_enqueue`."""
        return await sync_to_async(self.try_enqueue)(*args, **kwargs)

    async def aenqueue_many(
        self, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]], *, job_ids: Sequence[str] | None = None
    ) -> list[JobHandle]:
        """Async twin of `enqueue_many`."""
        return await sync_to_async(self.enqueue_many)(calls, job_ids=job_ids)

    async def aenqueue_unique(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle | None:
        """Async twin of `enqueue_unique`."""
        return await sync_to_async(self.enqueue_unique)(*args, **kwargs)

    async def aenqueue_unique_in(self, delay: Delay, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle | None:
        """Async twin of `enqueue_unique_in`."""
        return await sync_to_async(self.enqueue_unique_in)(delay, *args, **kwargs)

    async def aenqueue_unique_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle | None:
        """Async twin of `enqueue_unique_at`."""
        return await sync_to_async(self.enqueue_unique_at)(when, *args, **kwargs)

    async def aenqueue_unique_by_key(self, key: Any, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle | None:
        """Async twin of `enqueue_unique_by_key`."""
        return await sync_to_async(self.enqueue_unique_by_key)(key, *args, **kwargs)

    async def aenqueue_unique_by_key_in(
        self, key: Any, delay: Delay, /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle | None:
        """Async twin of `enqueue_unique_by_key_in`."""
        return await sync_to_async(self.enqueue_unique_by_key_in)(key, delay, *args, **kwargs)
