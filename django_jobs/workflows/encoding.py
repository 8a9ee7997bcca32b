"""What the store gets of a new workflow or batch: its fields, and its first steps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django_jobs.conf import Settings, get_settings
from django_jobs.core.placeholders import allowed
from django_jobs.core.values import NewJob, State
from django_jobs.enqueueing import request as new_job
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.enqueueing.request import NewJobRequest, WorkflowStep, encode
from django_jobs.enqueueing.signature import Signature
from django_jobs.enqueueing.submit import through_middleware, warn_of_late
from django_jobs.exceptions import InvalidWorkflow
from django_jobs.workflows.packing import POLICIES, Start, chunks, pack, pack_first


class Planned(NamedTuple):
    """One step of a workflow; steps are named by their numbers."""

    signature: Signature
    name: str
    after: Sequence[int]
    if_dead: str
    #: the steps whose results it gets.
    wants: Sequence[int]


def fields_of(id: str, name: str, plan: Sequence[Planned]) -> tuple[dict[str, bytes | int], list[Start]]:
    """Return the fields of a new workflow, and its first steps.  Raises the errors of their jobs."""
    followers: list[list[int]] = [[] for _ in plan]
    users: Counter[int] = Counter()
    for number, step in enumerate(plan):
        for before in step.after:
            followers[before].append(number)
        users.update(step.wants)
    last = [number for number, after in enumerate(followers) if not after]
    # `wait()` returns what the last step returned, if there is only one.
    noted = {*users, *(last if len(last) == 1 else ())}
    types, starts = encoded(id, id, ((str(n), step.signature, n in noted) for n, step in enumerate(plan)))

    def row(number: int) -> list[Any]:
        step = plan[number]
        return [step.name, types[number], starts[number].queue, step.after, step.if_dead]

    first = [start for step, start in zip(plan, starts, strict=True) if not step.after]
    fields: dict[str, bytes | int] = {"kind": b"workflow", **_common(name), "total": len(plan), "live": len(first)}
    # The rows of one chunk at a time: all at once make Python's garbage collector look through all of them.
    fields |= {f"o{i}": _text(list(map(row, some))) for i, some in chunks(range(len(plan)))}
    packed = pack_first(first)
    fields |= {"waiting": len(plan) - len(first), **packed, "firsts": len(packed), **_edges(followers)}
    for number, (step, start) in enumerate(zip(plan, starts, strict=True)):
        if step.after:
            fields[f"l:{number}"] = f"{len(step.after)}:0:{POLICIES[step.if_dead]}".encode()
            fields[f"d:{number}"] = pack([start])
        if step.wants:
            fields[f"w:{number}"] = ",".join(map(str, step.wants)).encode()
    if users:
        fields["wanting"] = b"1"
        fields |= {f"u:{number}": n for number, n in users.items()}
    if len(last) == 1:
        fields["last"] = last[0]
    return fields, first


def fields_of_batch(id: str, name: str, callbacks: Sequence[tuple[str, Signature]]) -> dict[str, bytes | int]:
    """Return the fields of a new batch without jobs.  Raises the errors of its callbacks."""
    types, starts = encoded(id, None, ((callback, signature, False) for callback, signature in callbacks))
    defined = {f"d:{start.step}": pack([start]) for start in starts}
    rows = [["", name, start.queue, [], "wait"] for name, start in zip(types, starts, strict=True)]
    return {"kind": b"batch", **_common(name), "total": 0, "live": 0, "o0": _text(rows), **defined}


def _common(name: str) -> dict[str, bytes | int]:
    return {"name": name.encode(), "created": new_job.now_ms(), "state": b"running"}


def encoded(
    id: str, workflow: str | None, steps: Iterable[tuple[str, Signature, bool]]
) -> tuple[list[str], list[Start]]:
    """Return the job types of steps, and what is enqueued: (step, its signature, whether its result is noted).  Every
    step goes through the enqueue middleware."""
    settings = get_settings()
    middleware = settings.enqueue_middleware
    # Two lists: Python's garbage collector looks through each of ten thousand pairs, again and again.
    types, starts = list[str](), list[Start]()
    with allowed():
        for step, signature, noted in steps:
            place = WorkflowStep(f"{id}.{step}", workflow, noted)
            if middleware:
                request, new = _through(middleware, signature, place, settings)
            else:
                request = signature.request
                new = _encoded(request, settings, place)
            types.append(request.name)
            starts.append(Start(step, request.queue, new))
    return types, starts


def _through(
    middleware: tuple[str, ...], signature: Signature, place: WorkflowStep, settings: Settings
) -> tuple[NewJobRequest, NewJob]:
    """Send a step through the enqueue middleware, which may change it."""
    made: list[tuple[NewJobRequest, NewJob]] = []

    def make(request: NewJobRequest) -> JobHandle:
        request.sent = new = _encoded(request, settings, place)
        made.append((request, new))
        return JobHandle(new.id, request.name, request.queue, State.QUEUED)

    through_middleware(middleware, make)(signature.new_request())
    if len(made) != 1:
        raise InvalidWorkflow(f"Enqueue middleware kept {signature!r} back: a workflow needs all of its steps.")
    return made[0]


def _encoded(request: NewJobRequest, settings: Settings, place: WorkflowStep) -> NewJob:
    if request.definition.is_late:
        warn_of_late(request.definition, settings)
    return encode(request, settings, 0, place)


def _edges(followers: Sequence[Sequence[int]]) -> dict[str, bytes | int]:
    """Return the fields that say which steps come after each: the most frequent list once, for all steps that have no
    field of their own."""
    texts = [",".join(map(str, each)) for each in followers]
    common = max(Counter(filter(None, texts)).items(), key=lambda item: item[1], default=("", 0))[0]
    own = {f"x:{number}": (text or "-").encode() for number, text in enumerate(texts) if text != common}
    return {"x": common.encode(), **own}


def _text(rows: Sequence[Any]) -> bytes:
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode()
