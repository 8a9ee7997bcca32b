"""Writes and reads the small texts in the store's keys.  Reads even texts that another program has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha1
from typing import Any

from django_jobs.core.attempt import LINE, packed, unpacked
from django_jobs.core.signature import signature
from django_jobs.core.values import Attempt, Claim, Ended, Expired, JobInfo, State
from django_jobs.serialization.checked import Unreadable, loads, moment, notice, read_number, typed, whole

#: Characters.  A longer error text or traceback is cut when it enters the log (workers cut earlier).
LONGEST_TEXT = 16_384
#: Of a message that is remembered beyond its jobs.
LONGEST_MESSAGE = 300
#: Made once: json.dumps makes an encoder at each call.
_dumps = json.JSONEncoder(separators=(",", ":")).encode


def attempt_text(attempt: Attempt) -> str:
    """Return what a script needs to know of an attempt: a line of the attempts log without its time, which the script
    adds, and the signature of the error."""
    entry = dict(zip(LINE, packed(attempt), strict=False))
    del entry["at"]
    line = _dumps(entry)
    if len(line) > LONGEST_TEXT:  # otherwise, no text in it is longer
        line = _dumps({k: v[:LONGEST_TEXT] if isinstance(v, str) else v for k, v in entry.items()})
    return f"{line}\n{signature(attempt)}\n{note_of(attempt)}"


def note_of(attempt: Attempt) -> str:
    """Return what is remembered of an error beyond its jobs (lib/ends/errors.lua): its release, its message, and what
    it is."""
    # Quotes of two texts cost a fifth of an encoded dict.
    head = f'{{"type":{_dumps(attempt.error_name or attempt.outcome)},"frame":{_dumps(attempt.frame)}}}'
    return f"{attempt.release}\t{_dumps(attempt.error[:LONGEST_MESSAGE])}\t{head}"


def text_of(ended: Ended) -> str | bytes:
    """Return the text of an end that lua/ending/settle.lua gets."""
    if ended.attempt is None:
        return ended.record or ended.knows
    text = attempt_text(ended.attempt)
    if not ended.record and not ended.queue:
        return text
    goal = _netstring(ended.queue.encode()) if ended.queue else b""
    return _netstring(ended.record) + goal + text.encode()


def _netstring(text: bytes) -> bytes:
    return b"%d:%b" % (len(text), text)


def netstrings(entry: bytes) -> list[bytes]:
    """Return the texts that `netstrings` of lua/lib/ends/finish.lua has joined.  Raises ValueError."""
    fields: list[bytes] = []
    while entry:
        length, _, rest = entry.partition(b":")
        fields.append(rest[: whole(length)])
        entry = rest[whole(length) :]
    return fields


def unsigned_text(outcome: str, error: str) -> str:
    """Return the same for an attempt that its worker did not report: the script adds its number and its worker."""
    line = json.dumps({"outcome": outcome, "error": error[:LONGEST_TEXT]})
    attempt = Attempt(0, outcome, 0, error=error)
    return f"{line}\n{signature(attempt)}\n{note_of(attempt)}"


def read_attempts(text: bytes | None) -> tuple[Attempt, ...]:
    """Return the log of attempts; a line that cannot be read is shown as text."""
    return tuple(_read_attempt(line) for line in (text or b"").split(b"\n") if line)


def _read_attempt(line: bytes) -> Attempt:
    try:
        return unpacked(typed(Attempt, loads(line.decode(errors="replace"))))
    except Unreadable:
        return Attempt(0, "corrupt", 0, error=line.decode(errors="replace")[:LONGEST_TEXT])


def read_tries(text: bytes | None) -> tuple[int, int, int, int]:
    """Return failures, crashes, parked since (ms), and the number of the last attempt before a person let the job run
    again."""
    if not text:
        return 0, 0, 0, 0
    try:
        failures, crashes, parked, *earlier = text.split(b":")
        return whole(failures), whole(crashes), whole(parked), whole(earlier[0]) if earlier else 0
    except ValueError:
        return 0, 0, 0, 0


def has_begun(tries: bytes | None) -> bool:
    """Return whether an attempt of the job has begun, or a person wants it to run."""
    return bool(tries) and not (tries or b"").startswith(b"0:0:")


def is_suspect(tries: bytes) -> bool:
    """Return whether a worker died with all its processes while it held the job (lua/lib/jobs/log.lua)."""
    return len(crashes := tries.split(b":")[1:2]) == 1 and crashes[0].startswith(b"0") and crashes[0].strip(b"0") != b""


def waits_to_begin(tries: bytes) -> bool:
    """Return whether a worker has claimed this suspect for its last permitted crash, and has not begun it."""
    return tries.partition(b":")[2].startswith(b"00")


def read_claim(text: bytes | None) -> tuple[int, int, str]:
    """Return token, claimed at (ms), holder."""
    try:
        token, claimed, holder = (text or b"").split(b":", 2)
        return whole(token), moment(claimed), holder.decode(errors="replace")
    except ValueError:
        return 0, 0, ""


def claim_from(
    id: str, queue: str, token: int, record: bytes | None, tries: bytes | None, *known: Any, **more: Any
) -> Claim:
    """Return a claim whose counts are those in `tries`; `known` are the fields from claimed_at on."""
    failures, crashes, parked, earlier = read_tries(tries)
    claim = Claim(id, queue, token, record or b"", failures, crashes, parked, *known, **more)
    return claim._replace(earlier=earlier)


def read_holdings(lines: bytes) -> Iterator[tuple[int, int]]:
    """Yield token and number of claims of each line."""
    for line in lines.split():
        token, _, n = line.partition(b"=")
        with suppress(Unreadable):
            yield whole(token), whole(n)


def read_expired(flat: Sequence[bytes]) -> list[Expired]:
    """Read id, record and ms since when it could run, of each job that a script has expired."""
    return [
        Expired(id.decode(errors="replace"), record, read_number(since))
        for id, record, since in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    ]


def texts(values: Sequence[bytes]) -> list[str]:
    """Decode replies that are ids or words."""
    return [value.decode(errors="replace") for value in values]


def read_move(key: str, entry: bytes) -> tuple[str, str, bytes, list[str | int | bytes]]:
    """Read the entry of a job that goes to another queue (leave_for in lib/ends/finish.lua): that queue, the id, the
    digest with which the id is remembered, and the last arguments of lua/adding/arrive.lua.  Raises ValueError."""
    _, id, due, _, tries, _, log, record, goal, signed, digest, locked, last = netstrings(entry)
    args: list[str | int | bytes] = [whole(key.partition(":")[0]), id, whole(due), tries, log, record, signed, digest]
    return goal.decode(), id.decode(), digest, [*args, whole(locked), whole(last)]


def read_ended(queue: str, entry: bytes) -> JobInfo:
    """Read all that was known of a job at its end (all_of in lib/ends/finish.lua).  What cannot be read is returned as
    the record of a dead job, whose error says why."""
    try:
        state, id, at, worker, tries, result, lines, record, *_ = netstrings(entry)
        run, _, body = result.partition(b":")
        failures, crashes, _, earlier = read_tries(tries)
        return JobInfo(
            id.decode(),
            queue,
            record,
            State(state.decode()),
            failures,
            crashes,
            earlier=earlier,
            at=moment(at),
            worker=worker.decode(errors="replace"),
            result=(body or b"null") if result else None,
            run_ms=whole(run) if run else -1,
            attempts=read_attempts(lines),
            begun=has_begun(tries),
        )
    except ValueError as error:
        notice(str(error))
        unreadable = Attempt(0, "corrupt", 0, error=f"entry cannot be read: {error}")
        # An id of its own: the archive keeps one row for each id.
        name = f"unreadable-{sha1(entry, usedforsecurity=False).hexdigest()}"
        return JobInfo(name, queue, entry, State.DEAD, attempts=(unreadable,))
