"""Why does this job not start?  Collects the facts; reasons.py has the answers.  The admin, the API and
`manage.py jobs why` ask here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.utils import translation

from django_jobs.browse.counts import JobCounts, job_counts
from django_jobs.browse.reasons import Reason, ReasonFacts, reason_of
from django_jobs.conf import QueueSettings, get_settings
from django_jobs.core.values import FINISHED, PLAIN, JobInfo, State
from django_jobs.enqueueing.keys import limit_now
from django_jobs.exceptions import CorruptRecord
from django_jobs.remote import known
from django_jobs.serialization.checked import is_moment
from django_jobs.serialization.masking import shown_key
from django_jobs.serialization.payloads import iso
from django_jobs.serialization.record import decode, enqueued_ms, name_line, name_of
from django_jobs.stores import get_store

#: How often the facts are read again if the job moved between two reads.
READS = 5
#: The document in which remote workers leave when they last asked a queue for work.
ASKED = "asked"


def why(info: JobInfo, counted: JobCounts | None = None, *, arguments: bool = True) -> tuple[JobInfo, Reason]:
    """Return why the job does not start, and the job as it was then: it may have moved since `info` was read.

    `counted`: the numbers of all queues, if the caller has them already.  `arguments`: the user may see arguments."""
    store = get_store()
    for _ in range(READS):
        facts = facts_of(info, counted or job_counts(), arguments=arguments)
        if info.state not in {State.QUEUED, State.BLOCKED, State.RUNNING} or facts.standing.state is info.state:
            break
        info = store.get(info.queue, info.id) or info
    return info, reason_of(facts)


def facts_of(info: JobInfo, counted: JobCounts, *, arguments: bool = True) -> ReasonFacts:
    """Read what the answer depends on.  Raises StoreError."""
    store, settings = get_store(), get_settings()
    name, number = name_of(info.record), name_line(info.record).partition("\t")[2]
    try:
        job = decode(info.id, info.queue, info.record)
        controls, key = replace(job.controls, limit=limit_now(job)), shown_key(job, arguments=arguments)
    except CorruptRecord:
        controls, key = PLAIN, ""
    facts = ReasonFacts(
        info, store.now(), name, int(number) if number.isdigit() else 1, controls, enqueued_ms(info.record, 0),
        shown_key=key,
    )  # fmt: skip
    if info.state is State.DEAD:
        return replace(facts, standing=store.standing(info.queue, info.id))
    if info.state in FINISHED or info.at > facts.now:
        return facts
    changes: dict[str, Any] = {"standing": store.standing(info.queue, info.id, controls.limit_key)}
    if info.state is not State.RUNNING:
        stats = store.stats([info.queue])[0]
        limits = settings.queues.get(info.queue) or QueueSettings(info.queue)
        kind = known().get(name)
        changes |= {
            "paused": stats.paused,
            "type_paused": stats.paused_types.get(name),
            "all_paused": all(each.paused for each in counted.queues.values()) and len(counted.queues) > 1,
            "workers": store.workers(),
            "max_running": limits.max_concurrency,
            "higher_queues": higher_queues(limits, counted) if settings.queue_order == "strict" else (),
            "pulled": kind is not None and not kind.url and info.queue in settings.queues,
            "refusal": store.refusal(info.queue),
        }
        if changes["pulled"]:
            asked = store.get_document(ASKED).get(info.queue)
            changes["asked_at"] = asked if is_moment(asked) else 0
        if info.parked_at:
            met = [each.unknown_to for each in store.parked(info.queue) if each.name == name_line(info.record)]
            changes["unknown_to"] = met[0] if met else frozenset()
    return replace(facts, **changes)


def higher_queues(limits: QueueSettings, counted: JobCounts) -> list[str]:
    """Return the queues of a higher priority that have jobs for workers, highest first."""
    queues = get_settings().queues
    found = [
        each
        for name, stats in counted.queues.items()
        if (each := queues.get(name)) is not None
        and each.priority > limits.priority
        and stats.counts.get(State.QUEUED)
        and not stats.paused
        and not 0 < each.max_concurrency <= stats.counts.get(State.RUNNING, 0)
    ]
    return [each.name for each in sorted(found, key=lambda each: -each.priority)]


def reason_payload(info: JobInfo, reason: Reason) -> dict[str, Any]:
    """Return the answer for programs, in English whatever the active language; times are ISO 8601 in UTC."""
    with translation.override("en"):
        text = reason.text(lambda ms: iso(ms) or "?")
    return {
        "id": info.id,
        "queue": info.queue,
        "state": info.state.value,
        "cause": reason.cause,
        "reason": text,
        "since": iso(reason.since),
        "until": iso(reason.until),
        "about": dict(zip(("kind", "name", "id"), reason.link, strict=False)) or None,
    }
