"""Chains and groups: workflows that are written as calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from django_jobs.enqueueing.signature import Signature
from django_jobs.exceptions import InvalidWorkflow
from django_jobs.runtime.async_twin import async_twin
from django_jobs.workflows.graph import Step, Workflow, has_previous, with_previous
from django_jobs.workflows.handle import WorkflowHandle

#: The last steps of a part: of a signature its step, of a group a list with those of each of its parts.
_Last: TypeAlias = "Step | list[_Last]"


class _Before:
    """What a part comes after."""

    def __init__(self, last: _Last) -> None:
        self._last = last
        self.steps = list(_steps(last))

    @property
    def value(self) -> Any:
        """What PREVIOUS is."""
        return _results(self._last)


def _steps(last: _Last) -> Iterator[Step]:
    if isinstance(last, Step):
        yield last
    else:
        for each in last:
            yield from _steps(each)


def _results(last: _Last) -> Any:
    return last.result if isinstance(last, Step) else [_results(each) for each in last]


class Canvas:
    """What chain and group return: a part of a workflow, or a workflow of its own."""

    def enqueue(self, *, on_commit: bool | None = None) -> WorkflowHandle:
        """Enqueue this as a workflow: see Workflow.enqueue."""
        return self.workflow().enqueue(on_commit=on_commit)

    aenqueue = async_twin(enqueue)

    def workflow(self, name: str = "") -> Workflow:
        """Return this as a new Workflow, to which steps can be added."""
        flow = Workflow(name)
        self._add_to(flow, None)
        return flow

    def then(self, *parts: Part) -> Chain:
        """Return a chain of this and these parts: they start when all of it has succeeded."""
        return Chain((self, *parts))

    def _add_to(self, flow: Workflow, before: _Before | None) -> _Last:
        raise NotImplementedError


Part = Signature | Canvas


class Chain(Canvas):
    """Parts that run one after the other."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = _checked("chain", parts)

    def __repr__(self) -> str:
        return f"chain({', '.join(map(repr, self.parts))})"

    def _add_to(self, flow: Workflow, before: _Before | None) -> _Last:
        first, *others = self.parts
        last = _add(flow, first, before)
        for part in others:
            last = _add(flow, part, _Before(last))
        return last


class Group(Canvas):
    """Parts that run side by side."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = _checked("group", parts)

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.parts[:3]))
        return f"group({shown}{', …' if len(self.parts) > 3 else ''})"

    def _add_to(self, flow: Workflow, before: _Before | None) -> _Last:
        return [_add(flow, part, before) for part in self.parts]


def chain(*parts: Part) -> Chain:
    """Return a chain: each part starts when the one before has succeeded.  PREVIOUS in the arguments of a signature is
    the result of the part before; after a group, the list of the results of its parts.

    Raises InvalidWorkflow for anything but signatures, chains and groups."""
    return Chain(parts)


def group(*parts: Part) -> Group:
    """Return a group: its parts run side by side, and what comes `then` when all of them have succeeded.

    Raises InvalidWorkflow for anything but signatures, chains and groups."""
    return Group(parts)


def _checked(what: str, parts: Sequence[Part]) -> tuple[Part, ...]:
    if not parts:
        raise InvalidWorkflow(f"{what}(): it has no parts. Pass signatures, as in {what}(task.s(7), task.s(8)).")
    for part in parts:
        if not isinstance(part, Signature | Canvas):
            raise InvalidWorkflow(
                f"{what}(): {part!r} is not a signature. Pass task.s(…), a chain or a group; a list as {what}(*parts)."
            )
    return tuple(parts)


def _add(flow: Workflow, part: Part, before: _Before | None) -> _Last:
    if isinstance(part, Canvas):
        return part._add_to(flow, before)
    if part.names_results:
        if before is None and has_previous([part.request.args, part.request.kwargs]):
            raise InvalidWorkflow(f"{part!r} is the first: there is no result before it for PREVIOUS.")
        if before is not None:
            part = with_previous(part, before.value)
    return flow.add(part, after=() if before is None else before.steps)
