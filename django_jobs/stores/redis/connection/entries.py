"""Writes and reads the small texts in the store's keys.  Reads even texts that another program has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from django_jobs.core.signature import signature
from django_jobs.core.values import Attempt
from django_jobs.stores.values.sizes import MAX_BATCH

#: Characters.  A longer error text or traceback is cut when it enters the log (workers cut earlier).
LONGEST_TEXT = 16_384
#: Made once: json.dumps makes an encoder at each call.
_dumps = json.JSONEncoder(separators=(",", ":")).encode


def attempt_text(attempt: Attempt) -> str:
    """Return what a script gets of an attempt: a line of the attempts log, in front of which the script puts its own
    time, and the signature of the error."""
    entry = attempt._asdict()
    del entry["at"]
    line = _dumps(entry)
    if len(line) > LONGEST_TEXT:  # otherwise, no text in it is longer
        line = _dumps({k: v[:LONGEST_TEXT] if isinstance(v, str) else v for k, v in entry.items()})
    return f"{line}\n{signature(attempt)}"


def unsigned_text(outcome: str, error: str) -> str:
    """Return the same for an attempt that its worker did not report: the script adds its number and its worker."""
    line = json.dumps({"outcome": outcome, "error": error[:LONGEST_TEXT]})
    return f"{line}\n{signature(Attempt(0, outcome, 0, error=error))}"


def read_attempts(text: bytes | None) -> tuple[Attempt, ...]:
    """Return the log of attempts; a line that cannot be read is shown as text."""
    return tuple(_read_attempt(line) for line in (text or b"").split(b"\n") if line)


def _read_attempt(line: bytes) -> Attempt:
    try:
        return Attempt(**json.loads(line.decode(errors="replace")))
    except (ValueError, TypeError):
        return Attempt(0, "corrupt", 0, error=line.decode(errors="replace")[:LONGEST_TEXT])


def read_tries(text: bytes | None) -> tuple[int, int, int]:
    """Return failures, crashes, parked since (ms)."""
    if not text:
        return 0, 0, 0
    try:
        failures, crashes, parked = text.split(b":")
        return int(failures), int(crashes), int(parked)
    except ValueError:
        return 0, 0, 0


def is_suspect(tries: bytes) -> bool:
    """Return whether a worker died with all its processes while it held the job (lua/lib/log.lua)."""
    return len(crashes := tries.split(b":")[1:2]) == 1 and len(crashes[0]) > 1 and crashes[0].startswith(b"0")


def waits_to_begin(tries: bytes) -> bool:
    """Return whether a worker has claimed this suspect for its last permitted crash, and has not begun it."""
    return tries.partition(b":")[2].startswith(b"00")


def read_number(text: bytes | str | float) -> int:
    """Return a count or a time; 0 if another program has stored something else."""
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        return 0


def read_claim(text: bytes | None) -> tuple[int, int, str]:
    """Return token, claimed at (ms), holder."""
    try:
        token, claimed, holder = (text or b"").split(b":", 2)
        return int(token), int(claimed), holder.decode(errors="replace")
    except ValueError:
        return 0, 0, ""


def read_holdings(lines: bytes) -> Iterator[tuple[int, int]]:
    """Yield token and number of claims of each line."""
    for line in lines.split():
        token, _, n = line.partition(b"=")
        if token.isdigit() and n.isdigit():
            yield int(token), int(n)


def chunks(values: Sequence[Any], size: int = MAX_BATCH) -> Iterator[Sequence[Any]]:
    """Yield all values, `size` at a time."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def texts(values: Sequence[bytes]) -> list[str]:
    """Decode replies that are ids or words."""
    return [value.decode(errors="replace") for value in values]
