"""Results that do not exist yet: what an argument of a workflow's step may stand for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

#: True where arguments may name results of other steps.
_allowed: ContextVar[bool] = ContextVar("django_jobs_results_allowed", default=False)


class StepResult:
    """The result of another step, as an argument: `step.result`.  `step` is that step."""

    __slots__ = ("step",)

    def __init__(self, step: Any) -> None:
        self.step = step

    def __repr__(self) -> str:
        return f"<the result of {self.step!r}>"


class _Previous:
    """The type of PREVIOUS."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "PREVIOUS"

    def __reduce__(self) -> str:
        return "PREVIOUS"


#: As an argument in a chain: the result of the step before; after a group, the list of the results of its parts.
PREVIOUS: Any = _Previous()


def are_allowed() -> bool:
    """Return whether arguments may name results of other steps here."""
    return _allowed.get()


@contextmanager
def allowed() -> Iterator[None]:
    """Let arguments name results of other steps."""
    token = _allowed.set(True)
    try:
        yield
    finally:
        _allowed.reset(token)
