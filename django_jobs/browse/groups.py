"""Groups the errors of jobs that are dead or wait for a retry."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from django_jobs.core.values import Attempt, JobInfo
from django_jobs.serialization.masking import masked
from django_jobs.serialization.record import name_of

#: The parts in which two messages of the same error differ: quoted text, numbers, long hexadecimal words.
_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\b[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3,6}\b|0x[0-9a-fA-F]+|\d+(?:\.\d+)*")
#: Maximum length of a message's signature: enough to tell errors apart, and short enough for a URL.
LENGTH = 160
#: The signature of jobs without an error, such as one that was killed before it ran.
NO_ERROR = "(none)"


@dataclass(slots=True)
class ErrorGroup:
    """Jobs that failed with the same kind of error."""

    signature: str
    error_type: str
    #: the unchanged message of the latest of them.
    example: str
    latest: JobInfo
    count: int = 0
    names: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups found by a bounded scan, largest first."""

    groups: list[ErrorGroup]
    scanned: int
    total: int
    left_out: int = 0


def signature_of(info: JobInfo, *, arguments: bool = True) -> str:
    """Return the signature of a job's last error: class and message without the parts that vary.

    It is never empty and has no space at its ends, because it is a filter in an address: an empty one would match all
    jobs, and one with a space none."""
    if not info.attempts:
        return NO_ERROR
    last = masked(info, arguments=arguments).attempts[-1]
    first_line = last.error.strip().split("\n", 1)[0][:LENGTH].strip()
    kind = kind_of(last).strip() or NO_ERROR
    return (f"{kind}: {_VARYING.sub('…', first_line)}" if first_line else kind)[:LENGTH].strip()


def kind_of(attempt: Attempt) -> str:
    """Return the error's class as Python prints it, or how the attempt ended."""
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
