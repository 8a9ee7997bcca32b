"""`async_twin`, for every call that has an async form.  Apart from its callers, because several packages share it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

Q = ParamSpec("Q")
T = TypeVar("T")


def async_twin(sync: Callable[Q, T]) -> Callable[Q, Coroutine[Any, Any, T]]:
    """Return the async form of a function or method: `aenqueue = async_twin(enqueue)`.

    It runs on Django's thread for sync code, so it sees a transaction that was opened there and waits for its commit.
    """
    in_thread = sync_to_async(sync)

    @wraps(sync)
    async def twin(*args: Q.args, **kwargs: Q.kwargs) -> T:
        return await in_thread(*args, **kwargs)

    twin.__name__, twin.__doc__ = f"a{sync.__name__}", f"Async twin of `{sync.__name__}`."
    twin.__qualname__ = sync.__qualname__.removesuffix(sync.__name__) + twin.__name__
    return twin
