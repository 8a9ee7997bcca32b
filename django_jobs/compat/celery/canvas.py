"""Signatures, chains, groups and chords: a workflow of django_jobs, written as Celery writes it.

Long because a part and what `|` makes of it name each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import uuid4

from django_jobs.compat.celery.calls import call_back, check_call, check_errback, publish, request_of
from django_jobs.compat.celery.conf import conf
from django_jobs.compat.celery.exceptions import NotRegistered, Unsupported
from django_jobs.compat.celery.missing import OF_PARTS
from django_jobs.compat.celery.results import AsyncResult, EagerResult, GroupResult
from django_jobs.core import registry
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.enqueueing.signature import Signature as JobSignature
from django_jobs.exceptions import UnknownJob
from django_jobs.formatting import call_text
from django_jobs.workflows import engine
from django_jobs.workflows.graph import Step, Workflow

#: The last steps of a part: of a signature its step, of a group a list with those of each of its parts.
_Last: TypeAlias = "Step | list[_Last]"
#: Means that there is no result before a part; None is a result.
_NOTHING: Any = object()
#: Workflows keep a result that a later step needs; a task that ignores its result keeps it for that long.
_FOR_NEXT_STEP = 60


class Element:
    """What signatures, chains, groups and chords share."""

    def apply_async(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Enqueue it.  `args` come before its own, `kwargs` replace its own."""
        raise NotImplementedError

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        return self.apply_async(args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue it with these arguments; a signature is called here and now."""
        return self.apply_async(args, kwargs)

    def __getattr__(self, name: str) -> Any:
        remedy = OF_PARTS.get(name)
        raise AttributeError(f"{type(self).__name__} has no {name}. {remedy}" if remedy else f"no attribute {name!r}")

    def __or__(self, other: Element) -> chain:
        if not isinstance(other, Element):
            return NotImplemented
        return chain(*_flat(self), *_flat(other))

    def _add(self, flow: Flow, before: Sequence[Step], value: Any, errbacks: Sequence[Signature] = ()) -> _Last:
        """Add its steps.  `errbacks`: the error callbacks of what it is a part of."""
        raise NotImplementedError

    def _run(self, value: Any, errbacks: Sequence[Signature] = ()) -> Any:
        """Run it here, and return its result (task_always_eager)."""
        raise NotImplementedError

    #: "link" and "link_error" → its callbacks, if it has its own.
    _callbacks: dict[str, Any]

    def link(self, callback: Element) -> Any:
        """Enqueue `callback` when it has succeeded, a chain its last task, with the result.  Returns `callback`."""
        self._callbacks["link"] = _unlike(*listed(self._callbacks.get("link")), callback)
        return callback

    def link_error(self, errback: Element) -> Any:
        """Enqueue `errback` when it, of a chain any task, has failed for good, with the id.  Returns `errback`."""
        self._callbacks["link_error"] = _unlike(*listed(self._callbacks.get("link_error")), errback)
        return errback

    def on_error(self, errback: Element) -> Element:
        """Do `link_error`, and return this part."""
        self.link_error(errback)
        return self

    def _enqueue(self, name: str) -> Any:
        """Enqueue it as a workflow.  Returns the result of its last part."""
        if conf.is_eager:
            return self._run(_NOTHING)
        flow = Flow(name)
        last = self._add(flow, (), _NOTHING)
        flow.call_back()
        return _result(flow.enqueue().id, last)

    def apply(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Run it here."""
        return self._with(args, kwargs or {}, options)._run(_NOTHING)

    def clone(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Return a copy: see `apply_async`."""
        return self._with(args, kwargs or {}, options)

    def _with(self, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> Element:
        raise NotImplementedError


class Signature(Element):
    """One call that has not been made: `task.s(…)`, `task.si(…)`, `signature("shop.tasks.remind", (7,))`."""

    def __init__(
        self,
        task: Any,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        immutable: bool = False,
        app: Any = None,
        **more: Any,
    ) -> None:
        """`task`: a task, or its name.  Raises NotRegistered for a name that no task of this process has."""
        self.type = task_of(task) if isinstance(task, str) else task
        self.args, self.kwargs = tuple(args or ()), dict(kwargs or {})
        self.options: dict[str, Any] = {**(options or {}), **more}
        self.immutable = immutable
        check_call(self.type.name, self.options)

    def __repr__(self) -> str:
        return call_text(self.type.name, self.args, self.kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signature) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def task(self) -> str:
        return str(self.type.name)

    name = task

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the task here and now."""
        made = self.clone(args, kwargs)
        return made.type(*made.args, **made.kwargs)

    def clone(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Signature:
        """Return a copy.  `args` come before its own, `kwargs` replace its own; an immutable one keeps its own."""
        if self.immutable:
            args, kwargs = (), None
        new = {**self.options, **options}
        return Signature(self.type, (*args, *self.args), {**self.kwargs, **(kwargs or {})}, new, self.immutable)

    def _with(self, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> Signature:
        return self.clone(args, kwargs, **options)

    def set(self, immutable: bool | None = None, **options: Any) -> Signature:
        check_call(self.task, {**self.options, **options})
        self.options.update(options)
        self.immutable = self.immutable if immutable is None else immutable
        return self

    def set_immutable(self, immutable: bool) -> None:
        """Choose whether it takes the result of the task before."""
        self.immutable = immutable

    @property
    def _callbacks(self) -> dict[str, Any]:  # type: ignore[override]
        return self.options

    def apply_async(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Enqueue it: see Task.apply_async, which a class of tasks may have replaced."""
        made = self.clone(args or (), kwargs, **options)
        return made.type.apply_async(made.args, made.kwargs, **made.options)

    def enqueue(self) -> Any:
        """Do what Task.apply_async does."""
        if conf.is_eager:
            return self._run(_NOTHING)
        links = _parts(self, "link")
        if links and self.options.get("task_id"):
            raise Unsupported(
                f"{self.task}.apply_async(link=…, task_id=…): the two do not go together. Enqueue the next task at the "
                "end of this one."
            )
        if links:
            first = Signature(self.type, self.args, self.kwargs, _without(self.options, "link"), self.immutable)
            return chain(first, links[0] if len(links) == 1 else group(links))._enqueue_first()
        errbacks = [(None, errback) for errback in _errbacks(self)]
        job = publish(self.type, self.args, self.kwargs, _without(self.options, "link", "link_error"), errbacks)
        return AsyncResult(job.id, handle=job)

    def _add(self, flow: Flow, before: Sequence[Step], value: Any, errbacks: Sequence[Signature] = ()) -> Step:
        if self.options.get("task_id"):
            raise Unsupported(
                f"{self!r} has a task_id, and is a part of a chain, a group or a chord. The ids of steps are made of "
                "the workflow's id. Leave it out."
            )
        links, errbacks = _parts(self, "link"), _unlike(*_errbacks(self), *errbacks)
        args = self.args if value is _NOTHING or self.immutable else (value, *self.args)
        options = _without(self.options, "link", "link_error")
        request = request_of(self.type, args, self.kwargs, options, is_step=True, is_later=bool(before))
        if request.definition.keep_result == 0 or (request.changed or {}).get("keep_result") == 0:
            request.changed = {**(request.changed or {}), "keep_result": _FOR_NEXT_STEP}
        step = flow.add(JobSignature(request), after=before)
        flow.errbacks[step] = [(None, errback) for errback in errbacks]
        for callback in links:
            callback._add(flow, [step], step.result)
        return step

    def _run(self, value: Any, errbacks: Sequence[Signature] = ()) -> EagerResult:
        args = self.args if value is _NOTHING or self.immutable else (value, *self.args)
        options = {**self.options, "link_error": _unlike(*_errbacks(self), *errbacks)}
        result: EagerResult = self.type.apply(args, self.kwargs, **options)
        return result


class Flow(Workflow):
    """A workflow whose steps have error callbacks."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        #: step → its error callbacks; each is told the id of the step in front of it, or of its own step (None).
        self.errbacks: dict[Step, list[tuple[Step | None, Signature]]] = {}

    def share_errbacks(self, header: Sequence[Step], bodies: Sequence[Step]) -> None:
        """Let the steps of a header call the error callbacks of its body, which does not start if one of them fails."""
        told = [(body, errback) for body in bodies for _, errback in self.errbacks[body]]
        for step in header:
            self.errbacks[step] += told

    def call_back(self) -> None:
        """Write the error callbacks into the jobs of the steps."""
        for step, errbacks in self.errbacks.items():
            call_back(
                step.signature.request, [(None if each is None else each.number, errback) for each, errback in errbacks]
            )


class chain(Element):
    """Parts that run one after the other; each gets the result of the one before as its first argument."""

    def __init__(self, *tasks: Any) -> None:
        self.tasks: list[Element] = _checked("chain", tasks)
        self._callbacks: dict[str, Any] = {}

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.tasks))

    def _with(self, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> chain:
        first, *others = self.tasks
        made = chain(first._with(args, kwargs, _without(options, "link", "link_error")), *others)
        made._callbacks = {name: [*listed(self._callbacks.get(name)), *listed(options.get(name))] for name in _BACK}
        return made

    def apply_async(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Enqueue it.  Returns the result of its last task, whose `parent` is the result of the one before.

        `link` counts for the last task, `link_error` for each, and all other options for the first."""
        return self._with(args or (), kwargs or {}, options)._enqueue("chain")

    def _enqueue(self, name: str) -> Any:
        is_one = len(self.tasks) == 1 and not any(self._callbacks.values()) and not conf.is_eager
        return self.tasks[0].apply_async() if is_one else super()._enqueue(name)

    def _enqueue_first(self) -> Any:
        """Enqueue it.  Returns the result of its first task."""
        result = self._enqueue("link")
        while result.parent is not None:
            result = result.parent
        return result

    def _add(self, flow: Flow, before: Sequence[Step], value: Any, errbacks: Sequence[Signature] = ()) -> _Last:
        last: _Last = []
        errbacks = _unlike(*_errbacks(self), *errbacks)
        for part in _with_chords(self.tasks):
            last = part._add(flow, before, value, errbacks)
            before, value = _steps(last), _value(last)
        for callback in _parts(self, "link"):
            callback._add(flow, before, value)
        return last

    def _run(self, value: Any, errbacks: Sequence[Signature] = ()) -> Any:
        result: Any = None
        errbacks = _unlike(*_errbacks(self), *errbacks)
        for part in _with_chords(self.tasks):
            before, result = result, part._run(value, errbacks)
            first = result
            while first.parent is not None:
                first = first.parent
            first.parent = before
            if not result.successful():
                return result
            value = result.get()
        for callback in _parts(self, "link"):
            callback._run(value)
        return result


class group(Element):
    """Parts that run side by side; all of them get the result of the part before."""

    def __init__(self, *tasks: Any) -> None:
        self.tasks: list[Element] = _checked("group", tasks, least=0)

    def __repr__(self) -> str:
        return f"group({self.tasks!r})"

    def __len__(self) -> int:
        return len(self.tasks)

    def _with(self, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> group:
        return group([part._with(args, kwargs, options) for part in self.tasks])

    def apply_async(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Enqueue it.  Returns a GroupResult.  The options count for each of its tasks."""
        if given := [name for name in _BACK if options.get(name)]:
            raise Unsupported(f"group.apply_async({given[0]}=…): {_REMEDIES[given[0]]}")
        made = self._with(args or (), kwargs or {}, options)
        return made._enqueue("group") if made.tasks else GroupResult(str(uuid4()), [])

    def skew(self, start: float = 1.0, stop: float | None = None, step: float = 1.0) -> group:
        """Give its tasks a countdown each, from `start` in steps to `stop`, and return it."""
        for number, part in enumerate(self.tasks):
            countdown = start + number * step
            made = part._with((), {}, {"countdown": countdown if stop is None else min(countdown, stop)})
            self.tasks[number] = made
        return self

    def link(self, callback: Element) -> Any:
        raise Unsupported(f"group.link(…): {_REMEDIES['link']}")

    def link_error(self, errback: Element) -> Any:
        """Link `errback` to each of its tasks."""
        for part in self.tasks:
            part.link_error(errback)
        return errback

    def _add(self, flow: Flow, before: Sequence[Step], value: Any, errbacks: Sequence[Signature] = ()) -> _Last:
        return [part._add(flow, before, value, errbacks) for part in self._unrolled()]

    def _run(self, value: Any, errbacks: Sequence[Signature] = ()) -> GroupResult:
        return GroupResult(str(uuid4()), [part._run(value, errbacks) for part in self._unrolled()])

    def _unrolled(self) -> Iterator[Element]:
        """Yield its parts, and those of the groups in it: the results of all of them are one list, as in Celery."""
        for part in self.tasks:
            yield from part._unrolled() if isinstance(part, group) else [part]


class chord(Element):
    """A group, its header, and a part that gets the list of its results, its body."""

    def __init__(self, header: Any, body: Element | None = None) -> None:
        """Without a body, `chord(header)(body)` enqueues."""
        self.header = header if isinstance(header, group) else group(header)
        self.body = body

    def __repr__(self) -> str:
        return f"chord({self.header!r}, {self.body!r})"

    @property
    def tasks(self) -> list[Element]:
        """The parts of its header."""
        return self.header.tasks

    def __call__(self, body: Element | None = None, **options: Any) -> Any:
        return chord(self.header, body or self.body).apply_async(**options)

    def _with(self, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> chord:
        header = self.header._with(args, kwargs, _without(options, *_BACK))
        return chord(header, self._body()._with((), {}, _without(options, "countdown", "eta")))

    def _body(self) -> Element:
        if self.body is None:
            raise TypeError(f"{self!r} has no body. Write chord(header)(body), or chord(header, body).")
        return self.body

    def apply_async(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Enqueue it.  Returns the result of its body, whose `parent` is that of the header.

        `countdown` and `eta` count for the header, `link` and `link_error` for the body, other options for both."""
        made = self._with(args or (), kwargs or {}, options)
        return made._enqueue("chord") if made.tasks else made._body()._with(([],), {}, {}).apply_async()

    def link(self, callback: Element) -> Any:
        """Link `callback` to its body."""
        return self._body().link(callback)

    def link_error(self, errback: Element) -> Any:
        """Link `errback` to its body, which fails if a task of its header does."""
        return self._body().link_error(errback)

    def _add(self, flow: Flow, before: Sequence[Step], value: Any, errbacks: Sequence[Signature] = ()) -> _Last:
        last = self.header._add(flow, before, value)
        if not (lasts := _steps(last)):
            return self._body()._add(flow, before, [], errbacks)
        body = self._body()._add(flow, lasts, _value(last), errbacks)
        # A step of the body comes after all steps of the header.
        flow.share_errbacks(_back_to(lasts, before), [step for step in flow.errbacks if lasts[0] in step.after])
        return body

    def _run(self, value: Any, errbacks: Sequence[Signature] = ()) -> Any:
        result = self.header._run(value)
        body = self._body()._run(result.get(), errbacks)
        body.parent = result
        return body


class chunks(Element):
    """Parts of `n` calls each, as `task.chunks(iterable, n)` returns it."""

    def __init__(self, starmap: Any, calls: Iterable[Any], n: int) -> None:
        """`starmap(calls)` returns the signature of one part."""
        items = iter(calls)
        self._parts = [starmap(part) for part in iter(lambda: list(itertools.islice(items, n)), [])]

    def group(self) -> group:
        return group(self._parts)

    def __call__(self, **options: Any) -> Any:
        return self.group().apply_async(**options)

    def apply_async(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Enqueue it: a group with a job for each part."""
        return self.group().apply_async(**options)

    def link(self, callback: Element) -> Any:
        raise Unsupported(f"chunks.link(…): {_REMEDIES['link']}")

    def link_error(self, errback: Element) -> Any:
        """Link `errback` to each part."""
        return self.group().link_error(errback)

    def _add(self, flow: Flow, before: Sequence[Step], value: Any, errbacks: Sequence[Signature] = ()) -> _Last:
        return self.group()._add(flow, before, _NOTHING, errbacks)

    def _run(self, value: Any, errbacks: Sequence[Signature] = ()) -> Any:
        return self.group()._run(_NOTHING, errbacks)

    def _with(self, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> Element:
        return self.group()._with((), {}, options)


def signature(task: Any, *args: Any, **options: Any) -> Signature:
    """Return a signature: see Signature.  A signature is returned as it is."""
    return task if isinstance(task, Signature) else Signature(task, *args, **options)


def maybe_signature(part: Any, app: Any = None, clone: bool = False) -> Any:
    """Return what it is given: a signature or None."""
    return part._with((), {}, {}) if clone and isinstance(part, Element) else part


def task_of(name: str) -> Any:
    """Return the task of that name.  Raises NotRegistered."""
    try:
        found = getattr(registry.get(name), "task", None)
    except UnknownJob as error:
        raise NotRegistered(str(error)) from error
    if found is None:
        raise NotRegistered(f"{name} is a job and no task of this layer. Enqueue it with enqueue().")
    return found


# -- how ----------------------------------------------------------------------------------

#: Options of a call that are callbacks.
_BACK = ("link", "link_error")
_REMEDIES = {
    "link": "use chord(group, callback), or link each of its tasks.",
    "link_error": "call link_error(errback) on the group, which links it to each of its tasks.",
}


def _parts(made: Signature | chain, option: str) -> list[Element]:
    """Return the parts of `link` or `link_error`.  Raises Unsupported for anything else."""
    found = listed(made._callbacks.get(option))
    for each in found:
        if not isinstance(each, Element):
            raise Unsupported(
                f"{made!r}: {option}={each!r} is not a signature of django_jobs.compat.celery. A task of another "
                "application cannot be enqueued from here: call its send_task in a task of this one."
            )
    return found


def _errbacks(made: Signature | chain) -> list[Signature]:
    """Return its own error callbacks.  Raises Unsupported for what cannot be one, TypeError if it cannot be called."""
    found = []
    for each in _parts(made, "link_error"):
        if not isinstance(each, Signature):
            raise Unsupported(
                f"{made!r}: link_error={each!r}: pass the signature of one task, and let it enqueue the others."
            )
        if given := [name for name in (*_BACK, "task_id") if each.options.get(name)]:
            raise Unsupported(f"{made!r}: link_error={each!r}: an error callback has no {given[0]} of its own.")
        check_errback(each)
        found.append(each)
    return found


def _unlike(*callbacks: Any) -> list[Any]:
    """Return each of them once: Celery does not link a callback twice to one task."""
    found: list[Any] = []
    for each in callbacks:
        if each not in found:
            found.append(each)
    return found


def _with_chords(tasks: Sequence[Element]) -> Iterator[Element]:
    """Yield the parts of a chain; a group and the part after it are one chord, as in Celery."""
    left = list(tasks)
    while left:
        part = left.pop(0)
        if isinstance(part, chunks):
            part = part.group()
        yield chord(part, left.pop(0)) if isinstance(part, group) and left else part


def _back_to(lasts: Sequence[Step], before: Sequence[Step]) -> Sequence[Step]:
    """Return these steps and all steps that lead to them, without those in `before` and what leads to these."""
    seen, found = set(before), list[Step]()
    left = list(lasts)
    while left:
        if (step := left.pop()) not in seen:
            seen.add(step)
            found.append(step)
            left += step.after
    return found


def listed(value: Any) -> list[Any]:
    """Return the callbacks that an option of a call names: one, several or none."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple | set) else [value]


def _without(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in names}


def _flat(part: Element) -> Sequence[Element]:
    return part.tasks if isinstance(part, chain) and not any(part._callbacks.values()) else (part,)


def _checked(what: str, tasks: Sequence[Any], least: int = 1) -> list[Element]:
    if len(tasks) == 1 and not isinstance(tasks[0], Element):
        tasks = list(tasks[0])
    found = [part for each in tasks for part in (_flat(each) if what == "chain" else [each])]
    for part in found:
        if not isinstance(part, Element):
            raise TypeError(f"{what}(): {part!r} is not a signature. Pass task.s(…).")
    if len(found) < least:
        raise TypeError(f"{what}() has no tasks.")
    return found


def _steps(last: _Last) -> list[Step]:
    return [last] if isinstance(last, Step) else [step for each in last for step in _steps(each)]


def _value(last: _Last) -> Any:
    return last.result if isinstance(last, Step) else [_value(each) for each in last]


def _result(workflow: str, last: _Last) -> Any:
    """Return the result of a part, with those of the steps before it as parents."""
    if not isinstance(last, Step):
        results = [_result(workflow, each) for each in last]
        parent = results[0].parent if results else None
        return GroupResult(workflow, results, parent)
    id = engine.job_id_of(workflow, str(last.number))
    before = last.after
    parent = None
    if len(before) == 1:
        parent = _result(workflow, before[0])
    elif before:
        parent = _result(workflow, list(before))
    request = last.signature.request
    return AsyncResult(id, handle=JobHandle(id, request.name, request.queue), parent=parent)
