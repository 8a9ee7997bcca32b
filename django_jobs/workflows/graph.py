"""Workflows as they are written: any graph of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from django_jobs.core.placeholders import PREVIOUS, StepResult
from django_jobs.enqueueing.signature import Signature
from django_jobs.exceptions import InvalidWorkflow, TooManySteps
from django_jobs.runtime.async_twin import async_twin
from django_jobs.stores.values.workflows import MOST_STEPS
from django_jobs.workflows.encoding import Planned
from django_jobs.workflows.handle import WorkflowHandle
from django_jobs.workflows.packing import POLICIES
from django_jobs.workflows.sending import send

IfDead = Literal["wait", "cancel", "run"]


class Step:
    """One step of a workflow, as `Workflow.add` returns it."""

    __slots__ = ("after", "if_dead", "name", "number", "signature", "workflow")

    def __init__(
        self, workflow: Workflow, number: int, signature: Signature, name: str, after: Sequence[Step], if_dead: IfDead
    ) -> None:
        self.workflow, self.number, self.signature = workflow, number, signature
        self.name, self.after, self.if_dead = name, after, if_dead

    def __repr__(self) -> str:
        return f"<step {self.name or self.number} of {self.workflow!r}: {self.signature!r}>"

    @property
    def result(self) -> Any:
        """What the step will have returned: an argument for a signature of a step after it."""
        return StepResult(self)


class Workflow:
    """Steps.  Each step starts when the steps before it have ended.

    `name` is shown to people; it need not be unique."""

    def __init__(self, name: str = "") -> None:
        if not isinstance(name, str) or len(name) > 200:
            raise InvalidWorkflow(f"Workflow({name!r}): use a text of at most 200 characters as the name.")
        self.name = name
        self._steps: list[Step] = []
        self._names: set[str] = set()

    def __repr__(self) -> str:
        return f"<Workflow {self.name!r} with {len(self._steps)} steps>"

    def add(
        self, signature: Signature, *, name: str = "", after: Sequence[Step] | Step = (), if_dead: IfDead = "wait"
    ) -> Step:
        """Add a step, which starts when the steps `after` have succeeded, and return it.

        Steps can only come after steps that were added before, so a workflow has no circles.  A step that names the
        result of another step (`step.result`) comes after it, too.

        `if_dead`: what happens when a step before it ends as dead, cancelled, expired or is deleted.  "wait": this step
        waits until that one was retried and has succeeded.  "cancel": it is cancelled.  "run": it runs all the same,
        and gets None as the result of that step.

        Raises InvalidWorkflow or TooManySteps; each error names the wrong value."""
        if not isinstance(signature, Signature):
            raise InvalidWorkflow(
                f"{self!r}: add({signature!r}): a step is a signature, as in add(task.s(7)). Chains and groups are "
                "workflows of their own; write their steps here with after=[…]."
            )
        if if_dead not in POLICIES:
            raise InvalidWorkflow(f"{self!r}: if_dead={if_dead!r}: use 'wait', 'cancel' or 'run'.")
        if not isinstance(name, str) or len(name) > 200:
            raise InvalidWorkflow(f"{self!r}: name={name!r}: use a text of at most 200 characters.")
        if name and name in self._names:
            raise InvalidWorkflow(f"{self!r}: two steps have the name {name!r}. Give each its own, or none.")
        before: Sequence[Step] = (after,) if isinstance(after, Step) else tuple(after)
        for each in before:
            if not isinstance(each, Step):
                raise InvalidWorkflow(
                    f"{self!r}: after={each!r} is not a step. Pass what add() returned, as in after=[source]."
                )
        named = _named(signature)
        for each in (*before, *named):
            if each.workflow is not self:
                raise InvalidWorkflow(f"{self!r}: {each!r} belongs to another workflow. Add a step of its own here.")
        for each in named:
            if each.signature.keeps_no_result:
                raise InvalidWorkflow(
                    f"{each!r} has keep_result=0, so it has no result that {signature!r} could get. Remove that option."
                )
        if len(self._steps) >= MOST_STEPS:
            raise TooManySteps(
                f"{self!r}: a workflow has at most {MOST_STEPS} steps. Use a Batch, or a step that does more."
            )
        everything = tuple(dict.fromkeys((*before, *named))) if before or named else ()
        step = Step(self, len(self._steps), _resolved(signature, everything), name, everything, if_dead)
        self._steps.append(step)
        if name:
            self._names.add(name)
        return step

    def enqueue(self, *, on_commit: bool | None = None) -> WorkflowHandle:
        """Enqueue the workflow, whole or not at all.  Inside atomic() it is enqueued when the transaction commits;
        `on_commit=False`: now.

        Raises InvalidWorkflow without steps, QueueFull if a queue of its first steps has no room, or a StoreError:
        after StoreUnavailable the workflow may or may not exist."""
        if not self._steps:
            raise InvalidWorkflow(f"{self!r} has no steps. Add one: add(task.s(…)).")
        plan = [
            Planned(step.signature, step.name, _numbers(step.after), step.if_dead, _numbers(_named(step.signature)))
            for step in self._steps
        ]
        return send(self.name, plan, on_commit)

    aenqueue = async_twin(enqueue)


def _named(signature: Signature) -> Sequence[Step]:
    """Return the steps whose results the arguments name."""
    if not signature.names_results:
        return ()
    found: list[Step] = []
    _collect([signature.request.args, signature.request.kwargs], found)
    return list(dict.fromkeys(found))


def _collect(value: Any, found: list[Step]) -> None:
    if isinstance(value, StepResult):
        found.append(value.step)
    elif isinstance(value, list | tuple):
        for item in value:
            _collect(item, found)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, found)


def has_previous(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(has_previous, value))
    if isinstance(value, dict):
        return any(map(has_previous, value.values()))
    return value is PREVIOUS


def _resolved(signature: Signature, before: Sequence[Step]) -> Signature:
    """Return the signature with the result of the only step before it for PREVIOUS."""
    if not (signature.names_results and has_previous([signature.request.args, signature.request.kwargs])):
        return signature
    if len(before) != 1:
        raise InvalidWorkflow(
            f"{signature!r}: PREVIOUS is the result of the step before, and {len(before) or 'no'} steps are before it. "
            "Name the step: step.result."
        )
    return with_previous(signature, StepResult(before[0]))


def with_previous(signature: Signature, value: Any) -> Signature:
    if not signature.names_results:
        return signature
    changed = object.__new__(Signature)
    changed.names_results, changed.request = True, signature.new_request()
    changed.request.args = _replaced(list(changed.request.args), value)
    changed.request.kwargs = _replaced(dict(changed.request.kwargs), value)
    return changed


def _replaced(found: Any, value: Any) -> Any:
    if found is PREVIOUS:
        return value
    if isinstance(found, list | tuple):
        return type(found)([_replaced(item, value) for item in found])
    if isinstance(found, dict):
        return {key: _replaced(item, value) for key, item in found.items()}
    return found


def _numbers(steps: Sequence[Step]) -> Sequence[int]:
    return [step.number for step in steps] if steps else ()
