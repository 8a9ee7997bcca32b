"""Which errors: jobs that wait for a retry or are dead, grouped by what went wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from django_jobs.core.values import Attempt, JobInfo
from django_jobs.serialization.record import name_of

#: What differs between two messages of the same error: quoted text, numbers, long hexadecimal words.
_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\b[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3,6}\b|0x[0-9a-fA-F]+|\d+(?:\.\d+)*")
#: Enough of a message to tell errors apart, and short enough for an address.
LENGTH = 160


@dataclass(slots=True)
class ErrorGroup:
    """Jobs that failed alike."""

    signature: str
    error_type: str
    #: the message of the latest of them, as it was.
    example: str
    latest: JobInfo
    count: int = 0
    names: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a bounded scan, largest first."""

    groups: list[ErrorGroup]
    scanned: int
    total: int
    left_out: int = 0


def signature_of(info: JobInfo) -> str:
    """The kind of a job's last error: class and message without what varies; "" if it has none."""
    if not info.attempts:
        return ""
    last = info.attempts[-1]
    first_line = last.error.strip().split("\n", 1)[0][:LENGTH]
    return f"{kind_of(last)}: {_VARYING.sub('…', first_line)}"[:LENGTH]


def kind_of(attempt: Attempt) -> str:
    """The class of an error as people write it, or how the attempt ended."""
    return attempt.error_name or attempt.outcome


def group_errors(jobs: list[JobInfo]) -> list[ErrorGroup]:
    """Group these jobs by signature, largest group first."""
    groups: dict[str, ErrorGroup] = {}
    for info in jobs:
        signature = signature_of(info)
        last = info.attempts[-1] if info.attempts else None
        group = groups.get(signature)
        if group is None:
            error_type = kind_of(last) if last else ""
            group = groups[signature] = ErrorGroup(signature, error_type, last.error if last else "", info)
        group.count += 1
        name = name_of(info.record)
        group.names[name] = group.names.get(name, 0) + 1
    return sorted(groups.values(), key=lambda group: -group.count)
