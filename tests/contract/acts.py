"""Short forms of what contract tests do to a store, on one queue."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django_jobs.core.values import Added, Attempt, Claim, Completed, JobInfo, Lane, NewJob, State
from django_jobs.serialization.record import decode
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.workflows import read_note

Q = "default"
LEASE = 30_000
FAILED = Attempt(1, "failed", 0, 12, "w", "ValueError", "no", "Traceback…")
LOST = Attempt(1, "worker_lost", 0)


def enqueue(store: Store, *jobs: NewJob) -> list[Added]:
    return store.enqueue(Q, jobs)


def claim(store: Store, limit: int = 1, worker: str = "w", **options: Any) -> list[Claim]:
    return store.claim(Q, worker, limit, **{"lease": LEASE, **options}).claims


def claim_alone(store: Store, limit: int = 1, worker: str = "w", **options: Any) -> list[Claim]:
    return claim(store, limit, worker, lane=Lane.ALONE, **options)


def claim_ids(store: Store, limit: int = 1, **options: Any) -> list[str]:
    return [claimed.id for claimed in claim(store, limit, **options)]


def start(store: Store, *jobs: NewJob, worker: str = "w") -> list[Claim]:
    """Enqueue these and claim them, wherever they wait."""
    enqueue(store, *jobs)
    return claim(store, len(jobs), worker) + claim_alone(store, len(jobs), worker)


def complete(store: Store, *claims: Claim, **fields: Any) -> list[str]:
    return store.complete(Q, [done(claimed, **fields) for claimed in claims])


def done(claimed: Claim, **fields: Any) -> Completed:
    """What a worker says of a success; it knows name and controls from the record."""
    job = decode(claimed.id, claimed.queue, claimed.record)
    return Completed(claimed, name=job.name, controls=job.controls, **fields)


def info(store: Store, id: str) -> JobInfo:
    found = store.get(Q, id)
    assert found is not None, f"job {id!r} is gone"
    return found


def state_of(store: Store, id: str) -> State | None:
    found = store.get(Q, id)
    return found.state if found else None


def ids_in(store: Store, state: State) -> list[str]:
    """In the order in which a page shows them."""
    return [job.id for job in store.page(Q, state, 0, 1000)]


def counts(store: Store) -> dict[str, int]:
    """The states that have jobs."""
    return {state: n for state, n in store.stats([Q])[0].counts.items() if n}


def totals(store: Store) -> Counter[str]:
    """What was counted since ever; what never happened is 0."""
    return Counter(store.stats([Q])[0].totals)


def finish(store: Store, state: State, *jobs: NewJob) -> None:
    """Bring new jobs to this end."""
    if state is State.EXPIRED:
        raise ValueError("a job expires by its own expires_at")
    for claimed in start(store, *jobs):
        if state is State.SUCCEEDED:
            complete(store, claimed)
        elif state is State.DEAD:
            store.bury(claimed, FAILED)
        else:
            store.discard(claimed, FAILED._replace(outcome="discarded"))


def notes_of(store, queue):
    """The notes that nobody has followed yet."""
    return [read_note(text) for text in store.transport.client.lrange(store.keys.of(queue)["notes"], 0, -1)]


def lose_notes(store, queue):
    """They are lost with the last second of their server."""
    store.transport.client.delete(store.keys.of(queue)["notes"])
