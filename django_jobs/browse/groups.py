"""The errors of jobs that are dead or wait for a retry, as groups over all queues: exact, from the store's index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from django_jobs.browse.counts import queue_names
from django_jobs.browse.match import Match, error_key
from django_jobs.core.signature import NO_ERROR, signature
from django_jobs.core.values import State
from django_jobs.serialization.masking import is_open, masked
from django_jobs.stores import get_store
from django_jobs.stores.contract.lists import FailureGroup

__all__ = ["GROUPED", "ErrorGroup", "error_groups", "matching_groups"]

#: States whose jobs the store keeps in groups.
GROUPED = frozenset({State.DEAD, State.RETRY})
#: For so many groups, of job types whose errors may show hidden values, one job is read for a text without them; of
#: further ones the class of the error is shown.
READ_FOR = 10


@dataclass(slots=True)
class ErrorGroup:
    """Jobs of all queues that failed with the same kind of error."""

    #: the filter for an address: it says nothing about the error.
    key: str
    #: class of the error, and its message without the parts that vary; as far as the reader may see it.
    error_type: str
    message: str
    count: int = 0
    #: ms
    first: int = 0
    last: int = 0
    #: job type → number of jobs.
    names: dict[str, int] = field(default_factory=dict)
    parts: list[FailureGroup] = field(default_factory=list)


def matching_groups(
    state: State, match: Match, queues: Sequence[str] | None = None, found: Sequence[FailureGroup] | None = None
) -> list[FailureGroup]:
    """Return the store's groups whose jobs match by queue, job type and error.

    `found`: all groups of these queues, if the caller has them already."""
    if found is None:
        queues = [match.queue] if match.queue else queue_names() if queues is None else queues
        found = get_store().failure_groups(queues, state)
    return [
        group
        for group in found
        if group.jobs
        and match.queue in ("", group.queue)
        and match.name in ("", group.name)
        and match.accepts_error(group.signature)
    ]


def error_groups(state: State, match: Match, found: Sequence[FailureGroup] | None = None) -> list[ErrorGroup]:
    """Return the groups of errors of all matching jobs, largest first."""
    groups: dict[str, ErrorGroup] = {}
    for part in matching_groups(state, match, found=found):
        group = groups.get(part.signature)
        if group is None:
            error_type, _, message = part.signature.partition(": ")
            group = groups[part.signature] = ErrorGroup(
                error_key(part.signature), error_type, message, first=part.first
            )
        group.count += part.jobs
        group.first, group.last = min(group.first, part.first), max(group.last, part.last)
        group.names[part.name] = group.names.get(part.name, 0) + part.jobs
        group.parts.append(part)
    largest = sorted(groups.values(), key=lambda group: (-group.count, -group.last))
    left = READ_FOR
    for group in largest:
        if not (match.arguments and all(is_open(name) for name in group.names)):
            left -= 1
            hide(state, group, arguments=match.arguments, read=left >= 0)
    return largest


def hide(state: State, group: ErrorGroup, *, arguments: bool, read: bool) -> None:
    """Replace the message by what this reader may see of it."""
    group.message = "…" if group.message else ""
    if not read:
        return
    jobs, _ = get_store().listed([group.parts[0].queue], state, 1, groups=group.parts[:1], reverse=True)
    if jobs and jobs[0].attempts:
        shown = signature(masked(jobs[0], arguments=arguments).attempts[-1])
        group.error_type, _, group.message = shown.partition(": ")
    elif not jobs or not jobs[0].attempts:
        group.error_type = NO_ERROR
