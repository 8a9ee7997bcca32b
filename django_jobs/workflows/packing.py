"""How a workflow's steps are written into its fields, and read again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django_jobs.conf import get_settings
from django_jobs.core.values import NewJob
from django_jobs.enqueueing.request import STEP, check_size, sent_later
from django_jobs.exceptions import PayloadError
from django_jobs.outbox import Fields
from django_jobs.serialization.checked import Unreadable, is_count, is_moment, loaded, loads
from django_jobs.serialization.record import decode, name_of
from django_jobs.serialization.results import why_missing, without_worker

#: Steps in one field: of the outline, and of the first steps.
CHUNK = 500
#: How a step that is named by none of these letters waits: until all steps before it succeeded.
POLICIES = {"wait": "w", "cancel": "c", "run": "r"}
#: The names of the fields that hold the first steps.
_FIRSTS = re.compile(r"f\d+")


class Start(NamedTuple):
    """A step that may start."""

    step: str
    queue: str
    new: NewJob


def pack(starts: Sequence[Start]) -> bytes:
    """Return these steps as one value: a line of JSON, then their records."""
    head = [
        # The delay of a step counts from its start.  Older versions cannot read it: only steps that have one say it.
        [s.step, s.queue, s.new.id, s.new.run_at, s.new.expires_in, len(s.new.record), *filter(None, [s.new.run_in])]
        for s in starts
    ]
    text = json.dumps(head, separators=(",", ":")).encode()
    return text + b"\n" + b"".join(start.new.record for start in starts)


def unpack(value: bytes) -> Iterator[Start]:
    """Yield the steps of a value that `pack` wrote.  Raises Unreadable or CorruptRecord."""
    head, _, records = value.partition(b"\n")
    at = 0
    steps = loads(head)
    for given in steps if isinstance(steps, list) else [steps]:
        match given:
            case [str(step), str(queue), str(id), run_at, expires_in, length, *more] if (
                is_moment(run_at)
                and is_count(length)
                and (expires_in is None or is_count(expires_in))
                and len(more) <= 1
                and all(map(is_count, more))
            ):
                record = records[at : at + length]
                at += length
                controls = decode(id, queue, record).controls
                yield Start(
                    step,
                    queue,
                    NewJob(
                        id,
                        record,
                        controls,
                        run_at,
                        run_in=more[0] if more else None,
                        expires_in=expires_in,
                        digest=STEP,
                    ),
                )
            case _:
                raise Unreadable(f"{given!r:.100} is no step")


def first_steps(fields: Fields) -> list[Start]:
    """Return the steps that start first.  `fields`: those of a new workflow.  Raises Unreadable or CorruptRecord."""
    packed = [value for name, value in fields.items() if isinstance(value, bytes) and _FIRSTS.fullmatch(name)]
    return [start for value in packed for start in unpack(value)]


def later(fields: Fields, starts: Sequence[Start], elapsed: int) -> tuple[Fields, Sequence[Start]]:
    """Return the fields of a new workflow and its first steps, to be sent `elapsed` ms after the call.  The delays
    of first steps count from the call, as those of other jobs do."""
    if all(start.new.run_in is None and start.new.expires_in is None for start in starts):
        return fields, starts
    starts = [start._replace(new=sent_later(start.new, elapsed)) for start in starts]
    return {**fields, **pack_first(starts)}, starts


def pack_first(starts: Sequence[Start]) -> dict[str, bytes]:
    """Return the fields that hold the first steps."""
    return {f"f{i}": pack(some) for i, some in chunks(starts)}


def chunks(rows: Sequence[Any]) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield (number of the chunk, its rows)."""
    for first in range(0, len(rows), CHUNK):
        yield first // CHUNK, rows[first : first + CHUNK]


def with_results(start: Start, results: Mapping[str, bytes]) -> Start:
    """Return the step with the results that its arguments name.  What is too long to be sent, or missing, is put into
    the arguments as such, so that the job ends as dead and says why."""
    *lines, args = start.new.record.split(b"\n", 6)
    if len(lines) != 6 or b'"$step"' not in args:
        return start
    values = {step: _as_argument(result) for step, result in results.items()}
    filled = json.dumps(_filled(loads(args), values), separators=(",", ":"), ensure_ascii=False).encode()
    try:
        check_size(name_of(start.new.record), filled, get_settings())
    except PayloadError as error:
        filled = json.dumps([[{"$absent": str(error)}], {}]).encode()
    return start._replace(new=start.new._replace(record=b"\n".join([*lines, filled])))


def _as_argument(result: bytes) -> Any:
    stored = without_worker(result)
    why = why_missing(stored)
    if why is not None:
        return {"$absent": why}
    return loaded(stored, {"$absent": "the result cannot be read"}) if stored else None


def _filled(value: Any, results: Mapping[str, Any]) -> Any:
    if type(value) is list:
        return [_filled(item, results) for item in value]
    if type(value) is not dict:
        return value
    if value.keys() == {"$step"}:
        return results.get(str(value["$step"]))
    return {key: _filled(item, results) for key, item in value.items()}
