"""What does the usual case quickly leaves every key as what can do any case: scripts, and short forms of scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_jobs.core.values import PLAIN, Added, Completed, Controls, Job, Lane, NewJob
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store, adding
from django_jobs.stores.redis.connection import part
from tests.support.dose import dose
from tests.support.faults.dumps import dump
from tests.support.faults.walking import QUEUE
from tests.survival.conftest import Clock

pytestmark = [pytest.mark.redis, pytest.mark.survival]

KEYS = ["a" * 64, "b" * 64]
CONTROLS = st.builds(
    Controls,
    priority=st.sampled_from([0, 0, -100, -7, 100]),
    alone=st.booleans(),
    at_most_once=st.booleans(),
    expires_at=st.sampled_from([None, None, 1]),
    unique=st.sampled_from([None, *KEYS]),
    unique_mode=st.sampled_from(["queued", "running", "success", "period"]),
    unique_for=st.just(500),
    limit_key=st.sampled_from([None, None, "k"]),
    limit=st.just(1),
    workflow=st.sampled_from([None, None, "w"]),
)


@st.composite
def new_jobs(draw: Any) -> NewJob:
    controls = draw(st.sampled_from([PLAIN]) | CONTROLS)
    id = draw(st.sampled_from("abcdef"))
    args = draw(st.sampled_from([b"[[],{}]", b'[["\\n0\\n"],{}]']))
    enqueued_at = draw(st.sampled_from([0, 0, 7]))
    record = encode(Job(id, QUEUE, draw(st.sampled_from(["shop.work", "0"])), args, enqueued_at, controls=controls))
    policy = draw(st.sampled_from(["skip", "raise"]))
    return NewJob(id, record, controls, on_conflict=policy, digest=draw(st.sampled_from(["", "", "c" * 64])))


STEPS = st.lists(
    st.tuples(st.just("enqueue"), st.lists(new_jobs(), min_size=1, max_size=3))
    | st.tuples(st.just("enqueue"), st.lists(new_jobs(), min_size=2, max_size=4, unique_by=lambda job: job.id))
    | st.tuples(st.sampled_from(["all or none", "what fits"]), st.lists(new_jobs(), min_size=1, max_size=4))
    | st.tuples(st.just("enqueue"), st.lists(new_jobs(), min_size=1, max_size=1))
    | st.tuples(st.sampled_from(["claim", "complete"]), st.sampled_from(Lane))
    | st.tuples(st.just("wait"), st.sampled_from([1, 499, 120_000])),
    min_size=1,
    max_size=12,
)


def walk(store: Store, clock: Clock, steps: Sequence[tuple[str, Any]]) -> list[Any]:
    """Return after each step what it answered and what every key then has."""
    store.transport.client.flushall()
    clock.now = 1_790_000_000_000
    held, seen = [], []
    for verb, what in steps:
        answer: Any = None
        if verb == "enqueue":
            answer = store.enqueue(QUEUE, what)
        elif verb in ("all or none", "what fits"):
            answer = store.enqueue(QUEUE, what, max_length=4, fills=verb == "what fits")
        elif verb == "claim":
            claims = store.claim(QUEUE, "worker", 2, lane=what, lease=10**9).claims
            held += claims
            answer = [claim.id for claim in claims]
        elif verb == "complete":
            answer, held = store.complete(QUEUE, [Completed(claim) for claim in held]), []
        else:
            clock.now += what
        keys = dump(store.transport.client, f"{{jobs:{QUEUE}}}:*")
        keys.pop(b"{jobs:%b}:answers" % QUEUE.encode(), None)  # a call has another number in each walk
        seen.append((answer, keys))
    return seen


@pytest.mark.accepts("K08")
@settings(
    max_examples=dose(100, long=5000),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(steps=STEPS)
def test_the_short_way_and_the_long_way_lead_to_the_same_place(
    law_store: Store, virtual: Clock, steps: Sequence[tuple[str, Any]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adding, "_lane_of", lambda job: None)
        patch.setattr(part.Part, "_run_shortly", part.Part._run)
        long = walk(law_store, virtual, steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part, "IN_FULL", 0)  # also after a case that was not usual
        assert walk(law_store, virtual, steps) == long


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("controls", [PLAIN, Controls(priority=5)], ids=["plain", "other"])
def test_a_count_that_cannot_be_added_to_begins_again_on_every_way(
    law_store: Store, controls: Controls, number: int
) -> None:
    law_store.transport.client.hset(law_store.keys.of(QUEUE)["totals"], "enqueued:shop.work", b"many")
    for ids in ("abcd"[:number], "efgh"[:number]):
        jobs = [
            NewJob(id, encode(Job(id, QUEUE, "shop.work", b"[[],{}]", 0, controls=controls)), controls) for id in ids
        ]
        assert law_store.enqueue(QUEUE, jobs) == [Added.ADDED] * number
    assert law_store.stats([QUEUE])[0].totals["enqueued"] == 2 * number


def test_a_late_copy_of_the_short_form_takes_nothing_when_the_full_one_found_nothing(
    law_store: Store, virtual: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are one call: it was answered, whichever of its requests was carried out."""
    law_store.transport.client.flushall()
    run, requests = law_store.transport.run, []

    def noted(*call: Any) -> Any:
        requests.append(call)
        return run(*call)

    with monkeypatch.context() as patch:
        patch.setattr(law_store.transport, "run", noted)
        law_store.pause(QUEUE, name="shop.other")
        requests.clear()
        assert law_store.claim(QUEUE, "worker", 2, lease=1000).claims == []
    other = Store(
        law_store.transport, law_store.options
    )  # another sender: its calls do not show that the copies are late
    other.resume(QUEUE, name="shop.other")
    other.enqueue(QUEUE, [NewJob("a", encode(Job("a", QUEUE, "shop.work", b"[[],{}]", 1)))])
    short, full = requests
    for late in (short, full):
        run(*late)
        assert law_store.stats([QUEUE])[0].counts["running"] == 0
