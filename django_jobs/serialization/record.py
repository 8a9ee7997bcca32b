"""A job's record: Job ⇄ bytes.  The store keeps these bytes unchanged; it can only replace the last line.

A record has seven lines.  The first five are short, so that a script can read them without parsing JSON.  Lines 1
to 4 have the same meaning in every format, because the scripts of older workers read them:

    -                     what of line 4 matters where the job starts: "+" look there, "<1000 key" a limit and nothing
                          else, "=" nothing, "=w" nothing, and it has only the job's workflow; "-" where it is empty
    shop.jobs.receipt     the name on the wire; from format 2 on, a tab and the number of the format.  Readers see the
                          name that the type has now; what jobs of one type share goes by its identity (`type_of`)
    {"max_attempts": 4}   Options that differ from the default, or empty
    {"priority": 5}       Controls that differ from the default, or empty
    1790000000000         enqueued at, ms by the store's clock; 0 in what is sent to it
    {"request": "…"}      meta, or empty
    [[7], {}]             arguments: the rest, newlines and all

A field of Options or Controls that this version does not know is kept and has no effect here.  If a record must not run
without knowledge of something new (a field, a type of argument), it is written in a new format: workers that do not
know the format leave the job to those that do.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, TypeVar

from django_jobs.core import registry
from django_jobs.core.values import (
    DEFAULT_OPTIONS,
    PLAIN,
    RECORD_FORMAT,
    WAITING,
    Claim,
    Controls,
    Job,
    JobInfo,
    Options,
    tags_in,
)
from django_jobs.exceptions import CorruptRecord, NewerRecord
from django_jobs.serialization.checked import Unreadable, loads, moment, typed

T = TypeVar("T")
_dumps = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode


#: Matches at the start of a line of Controls: behind it, a value that only a newer version knows may have such a field.
_DIGEST = re.compile(rb'\{(?:"(?!unique")\w+":(?:[\w.+-]+|"[^"\\]*"),)*"unique":"([0-9a-f]+)"')
_TYPE = re.compile(rb'[{,]"type":"([^"\\]+)"')
#: First bytes of records whose fourth line is not empty.
_WITH_CONTROLS = (b"+", b"<", b"=")


def _differing(value: Any) -> str:
    """Return the fields of a dataclass that differ from the default, as JSON; "" if none."""
    changed = {f.name: v for f in fields(value) if (v := getattr(value, f.name)) != f.default}
    more = json.loads(changed.pop("more", "{}"))
    return _dumps(changed | more) if changed or more else ""


_options_line = lru_cache(maxsize=1024)(_differing)


def _given(kind: type[T], line: bytes) -> T:
    """Return the fields in a line.  Raises Unreadable for a type that would otherwise fail only where it is used."""
    given, known = loads(line), kind.__annotations__.keys() - {"more"}
    if isinstance(given, dict) and (more := {name: given.pop(name) for name in given.keys() - known}):
        given["more"] = _dumps(more)
    return typed(kind, given)


@lru_cache(maxsize=1024)
def _options(line: bytes) -> Options:
    return _given(Options, line)


def _options_of(name: str, line: bytes) -> Options:
    """Return the options of a job; a job that has an older name of its type gets the identity of the type with the
    current name, so that it stays of this type if it is encoded again."""
    options = _options(line) if line else DEFAULT_OPTIONS
    if options.type or registry.current_name(name) == name:
        return options
    return replace(options, type=registry.identity_of(name))


# Jobs of one type share this line, apart from the digest.  Lines with a time differ, and just pass through the cache.
@lru_cache(maxsize=512)
def _shared(line: bytes) -> Controls:
    return _given(Controls, line)


#: Where the digest is in the line of a job that is unique and has no controls before that, as most unique jobs.
_BEFORE, _FROM, _TO = b'{"unique":"', 11, 75


@lru_cache(maxsize=512)
def _shared_after(rest: bytes) -> Controls:
    return _shared(_BEFORE + rest)


def _controls(line: bytes) -> Controls:
    if line[:_FROM] == _BEFORE and line[_TO : _TO + 1] == b'"' and (digest := line[_FROM:_TO]).isalnum():
        return _shared_after(line[_TO:]).with_digest(digest.decode())
    unique = _DIGEST.match(line)
    if unique is None:
        return _shared(line)
    return _shared(line[: unique.start(1)] + line[unique.end(1) :]).with_digest(unique[1].decode())


def _meta(line: bytes) -> dict[str, Any]:
    meta = loads(line)
    if not isinstance(meta, dict):
        raise Unreadable(f"meta is {meta!r:.100}")
    return meta


def encode(job: Job) -> bytes:
    """Return the record of `job`.  `job.name` must not contain a newline (names are checked at definition)."""
    return _head(job.name, job.options, job.controls, job.enqueued_at, job.meta) + job.args


def _head(name: str, options: Options, controls: Controls, at: int = 0, meta: dict[str, Any] | None = None) -> bytes:
    """Return the record up to the arguments."""
    differing = "" if options is DEFAULT_OPTIONS else _options_line(options)
    controlled = "" if controls is PLAIN else _differing(controls)
    sent = _dumps(meta) if meta else ""
    flag = _flag(controls) if controlled else "-"
    return f"{flag}\n{name}\n{differing}\n{controlled}\n{at}\n{sent}\n".encode()


#: The common part of the records of a job type: if a call sets only arguments, they alone follow.
shared_head = lru_cache(maxsize=1024)(_head)


@lru_cache(maxsize=1024)
def head_around_digest(name: str, options: Options, controls: Controls) -> tuple[bytes, bytes]:
    """Return what comes before and after the digest, for a job type whose records differ only in that before their
    arguments."""
    digest = "0" * 64
    before, _, after = _head(name, options, controls.with_digest(digest)).rpartition(digest.encode())
    return before, after


def _flag(controls: Controls) -> str:
    """Return the first line for a job with controls: all that a claim reads."""
    if controls.workflow is not None and only_workflow(controls):
        return "=w"
    if controls.expires_at is not None or (controls.unique is not None and controls.unique_mode == "queued"):
        return "+"
    key = controls.limit_key
    if key is None:
        return "="
    return f"<{controls.limit} {key}" if "\n" not in key and "\0" not in key and controls.limit >= 0 else "+"


def only_workflow(controls: Controls) -> bool:
    """Return whether the controls have nothing but the workflow that the job belongs to."""
    return replace(controls, workflow=None, noted_result=False) == PLAIN


def is_plain_step(record: bytes) -> bool:
    """Return whether the job belongs to a workflow and has no other controls.  The first line shows it."""
    return record.startswith(b"=w\n")


def has_controls(record: bytes) -> bool:
    """Return whether the controls of a record differ from PLAIN.  The first byte shows it."""
    return record[:1] in _WITH_CONTROLS


def decode(id: str, queue: str, record: bytes) -> Job:
    """Return the job of this record.  Raises CorruptRecord with the reason if it cannot be read."""
    try:
        _, named, options, controls, enqueued_at, meta, args = record.split(b"\n", 6)
        name, _, number = named.decode().partition("\t")
        if number and int(number) > RECORD_FORMAT:
            raise NewerRecord(
                f"Job {id!r} in queue {queue!r} has a record of format {number}, "
                f"and this django_jobs knows format {RECORD_FORMAT}. Upgrade django_jobs in this process."
            )
        return Job(
            id,
            queue,
            registry.current_name(name),
            args,
            moment(enqueued_at),
            _options_of(name, options),
            _controls(controls) if controls else PLAIN,
            _meta(meta) if meta else None,
        )
    except NewerRecord:
        raise
    except ValueError as error:
        raise CorruptRecord(f"Job {id!r} in queue {queue!r} cannot be read: {error}") from error


def job_in(info: JobInfo) -> Job | None:
    """Return the job of this info; None if its record cannot be read."""
    try:
        return decode(info.id, info.queue, info.record)
    except CorruptRecord:
        return None


def name_of(record: bytes) -> str:
    """Return the name that the type of a job has now, as `decode` does, or "" if the record cannot be read: for lists
    that must show every job."""
    return registry.current_name(name_line(record).partition("\t")[0])


def type_of(record: bytes) -> str:
    """Return the identity of the type of a job, as lua/lib/jobs/record.lua does; "" if the record cannot be read."""
    parts = record.split(b"\n", 3)
    renamed = _TYPE.search(parts[2]) if len(parts) == 4 else None
    return renamed[1].decode(errors="replace") if renamed else name_line(record).partition("\t")[0]


def name_line(record: bytes) -> str:
    """Return the name and, from format 2 on, the format: what a worker must know to run the job."""
    parts = record.split(b"\n", 2)
    return parts[1].decode(errors="replace") if len(parts) == 3 else ""


def tags_of(record: bytes) -> tuple[str, ...]:
    """Return the tags in a record, or () if it cannot be read: for lists, which need nothing else of its options."""
    parts = record.split(b"\n", 3)
    if len(parts) < 4 or b'"tags":' not in parts[2]:
        return ()
    try:
        return tags_in(_options(parts[2]).tags)
    except Unreadable:
        return ()


def enqueued_ms(record: bytes, otherwise: int) -> int:
    """Return the time of enqueueing in a record (ms), or `otherwise` if it cannot be read."""
    try:
        return moment(record.split(b"\n", 5)[4])
    except (IndexError, Unreadable):
        return otherwise


def waited_ms(record: bytes, since: int, until: int) -> int:
    """Return how long the job had waited at `until` (ms): from `since`, as in JobInfo, or from its enqueueing."""
    return max(0, until - max(since, enqueued_ms(record, until if not since else 0)))


def waited_for(claim: Claim) -> int:
    """Return how long the job had waited for this claim (ms); -1 = the time of the claim is not known."""
    return waited_ms(claim.record, claim.since, claim.claimed_at) if claim.claimed_at else -1


def has_expired(info: JobInfo, now: int) -> bool:
    """Return whether this job, which waits, may not begin any more: the next claim that meets it ends it."""
    if info.begun or info.state not in WAITING:
        return False
    job = job_in(info)
    return job is not None and job.controls.expires_at is not None and 0 < job.controls.expires_at <= now
