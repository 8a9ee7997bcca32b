"""Finds the job types whose attempts fail: how many, and how many are usual."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from django_jobs import browse
from django_jobs.browse.counts import LIVE_QUEUES
from django_jobs.core import registry
from django_jobs.core.values import QueueStats, State
from django_jobs.samples.chart import Sampled, Stretch, stretches
from django_jobs.samples.log import COARSE, FINE
from django_jobs.stores import get_store
from django_jobs.stores.values.errors import KeptError

#: Attempts of a type that fail within ten minutes, and jobs of a type that wait for a retry, before it is looked at.
FEW = 10
#: Failures are unusual if their part of all attempts is so many times the usual one, or more than halfway from that to
#: all.  A smaller part than LEAST never is.  While nothing is usual, half of all are; whether so many are usual shows
#: after DAY hours.
RISE, LEAST, HALF, DAY, AGES = 3, 0.01, 0.5, 24, 72
#: Jobs of all types that wait for a retry, before they are compared with those that succeed.
RETRIES = 100
#: Releases that are named beside an error.
RELEASES = 3
#: Types for which the error is read.
ERRORS = 20


class TypeNumbers(NamedTuple):
    """Attempts of one job type in one queue."""

    queue: str
    name: str
    #: in the last five to ten minutes.
    failed: int
    attempts: int
    #: the part of its attempts that failed in the usual hour of the last week: 0…1; None if none is known.
    usual: float | None
    #: ms: since when attempts have failed without a pause of five minutes; 0 = not known.
    since: int
    #: attempts that succeeded in the last hour.
    succeeded: int = 0
    #: jobs of the type that wait for a retry, since when (ms); the commonest error, and the state of jobs that have it.
    retrying: int = 0
    retrying_since: int = 0
    error: str = ""
    state: str = ""


def failing_types(
    counted: browse.JobCounts, now: int, *, arguments: bool = True
) -> tuple[list[TypeNumbers], list[str]]:
    """Return the job types with many failed attempts in the last minutes, or many jobs that wait for a retry, and the
    queues that were left out.

    `arguments`: the reader may see them, and so the errors that quote them.  With many queues, those are read that have
    jobs that failed: their samples would take too long."""
    names = list(counted.queues)
    if len(names) > LIVE_QUEUES:
        failed = {name: n for name, stats in counted.queues.items() if (n := _failed(stats))}
        names = sorted(failed, key=lambda name: (-failed[name], name))
    queues, left_out = names[:LIVE_QUEUES], names[LIVE_QUEUES:]
    store = get_store()
    fine = store.samples(queues, FINE, types=True) if queues else {}
    found = {
        (queue, name): numbers
        for queue, sampled in fine.items()
        for name, totals in sampled.totals.items()
        if totals[1] >= FEW and (numbers := _numbers(queue, name, sampled, now))
    }
    retried = [queue for queue in queues if counted.queues[queue].counts.get(State.RETRY, 0) >= FEW]
    for (queue, name), (number, first) in _retrying(retried).items():
        if number >= FEW:
            before = found.get((queue, name)) or TypeNumbers(queue, name, 0, 0, None, 0)
            found[queue, name] = before._replace(retrying=number, retrying_since=first)
    found = {key: each for key, each in found.items() if each.failed >= FEW or each.retrying}
    coarse = store.samples(sorted({queue for queue, _ in found}), COARSE, types=True) if found else {}
    worst = sorted(found.values(), key=lambda each: (-each.failed, -each.retrying, each.queue, each.name))
    compared = [each._replace(usual=_usual_part(coarse.get(each.queue), each.name, now)) for each in worst]
    return _with_errors(compared, arguments), left_out


def _failed(stats: QueueStats) -> int:
    return stats.counts.get(State.RETRY, 0) + stats.counts.get(State.DEAD, 0)


def _numbers(queue: str, name: str, sampled: Sampled, now: int) -> TypeNumbers:
    identity = registry.identity_of(name)
    if sampled.log is None:  # the queue is younger than the first sample
        done, failed, _ = sampled.totals[name]
        return TypeNumbers(queue, name, failed, done + failed, None, 0, done)
    hour = stretches(sampled, identity, FINE, 12, now)
    done, failed = _sum(hour[-2:])
    since = 0
    for each in reversed(hour):
        if not each.counts or not each.counts[1]:
            break
        since = each.start
    return TypeNumbers(queue, name, failed, done + failed, None, since, _sum(hour)[0])


def _sum(some: Iterable[Stretch]) -> tuple[int, int]:
    known = [each.counts for each in some if each.counts is not None]
    return sum(counts[0] for counts in known), sum(counts[1] for counts in known)


def _usual_part(sampled: Sampled | None, name: str, now: int) -> float | None:
    """Return the part of the attempts that failed in the median hour of the last week, of those before the trouble."""
    if sampled is None or sampled.log is None:
        return None
    week = stretches(sampled, registry.identity_of(name), COARSE, 7 * 24, now)[:-1]
    parts = [each.counts[1] / all_ for each in week if each.counts and (all_ := each.counts[0] + each.counts[1])]
    return usual_part(parts)


def usual_part(parts: Iterable[float]) -> float | None:
    """Return the median of these parts, oldest first, without hours of trouble, which are above the median of what was
    usual before them.  Trouble of AGES hours in a row is the usual from then on.

    None if too few are known to say that so many failures are usual."""
    usual, trouble = list[float](), list[float]()
    for part in parts:
        if usual and is_above(part, median(usual)):
            trouble.append(part)
            if len(trouble) == AGES:
                usual, trouble = trouble, []
        else:
            usual.append(part)
            trouble = []
    return median(usual) if usual and (len(usual) >= DAY or median(usual) < HALF) else None


def is_above(part: float, usual: float) -> bool:
    """Return whether so many attempts fail that it is not as usual."""
    return part >= LEAST and part > min(RISE * usual, (1 + usual) / 2)


def _retrying(queues: Sequence[str]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return how many jobs of each type wait for a retry, and when the first of them failed."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for group in get_store().failure_groups(queues, State.RETRY, None) if queues else ():
        if group.jobs:
            number, first = found.get((group.queue, group.name), (0, group.first))
            found[group.queue, group.name] = number + group.jobs, min(first, group.first)
    return found


def _with_errors(worst: Sequence[TypeNumbers], arguments: bool) -> list[TypeNumbers]:
    """Add the commonest error to each of the first."""
    first = [(each.queue, each.name) for each in worst[:ERRORS]]
    found = browse.commonest_errors(first, arguments=arguments) if worst else {}
    queues, signatures = {queue for queue, _ in found}, {group.signature for _, group in found.values()}
    kept, _ = get_store().errors(sorted(queues), sorted(signatures))
    seen = {(each.queue, each.signature): each for each in kept}
    told = list[TypeNumbers]()
    for each in worst:
        if entry := found.get((each.queue, each.name)):
            state, group = entry
            each = each._replace(error=_said(group, seen.get((each.queue, group.signature))), state=state.value)
        told.append(each)
    return told


def _said(group: browse.ErrorGroup, kept: KeptError | None) -> str:
    """Return the error, with the releases in which it was seen, the latest last."""
    text = f"{group.error_type}: {group.message}" if group.message else group.error_type
    releases = kept.releases if kept else {}
    names = sorted(releases, key=lambda name: releases[name].last)[-RELEASES:]
    return f"{text} (release {', '.join(names)})" if names else text
