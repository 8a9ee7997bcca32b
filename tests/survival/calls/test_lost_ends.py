"""An end that was recorded while its answer was lost for good: made again later, it is known and told of like any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread

import pytest

from django_jobs import signals
from django_jobs.core.attempt import Attempted
from django_jobs.core.outcome import Cancelled, Dead, Outcome, RetryIn, SnoozeFor, Succeeded
from django_jobs.core.values import Attempt, Claim, Completed, Completion, Ended, Job, NewJob, State
from django_jobs.exceptions import StoreUnavailable
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection import scripts, transport
from django_jobs.worker.child.settler import Settler
from tests.support.backends.proxy import Proxy
from tests.support.backends.redis_process import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.redis

FAILED = Attempt(1, "failed", 0, error="no")
ENDS: dict[str, Callable[[Store, list[Claim]], object]] = {
    "complete": lambda store, claims: store.complete("q", [Completed(claim, b"1") for claim in claims]),
    "retry": lambda store, claims: store.retry(claims[0], FAILED, 5_000),
    "snooze": lambda store, claims: store.snooze(claims[0], 5_000),
    "bury": lambda store, claims: store.bury(claims[0], FAILED),
    "discard": lambda store, claims: store.discard(claims[0], FAILED),
}
HELD: dict[str, object] = {
    "complete": [],
    "retry": State.RETRY,
    "snooze": State.SCHEDULED,
    "bury": True,
    "discard": True,
}


@pytest.fixture
def near(quiet_server: RedisServer) -> Iterator[Store]:
    """A store that hears every answer."""
    with quiet_server.client() as client:
        client.flushall()
    store = Store.from_setting(quiet_server.url)
    yield store
    store.close()


@pytest.fixture
def proxy(quiet_server: RedisServer) -> Iterator[Proxy]:
    proxy = Proxy(quiet_server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def far(near: Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The same store behind the proxy, soon out of patience."""
    monkeypatch.setattr(transport, "LAST_TRY", 0.1)
    store = Store.from_setting(proxy.url)
    yield store
    store.close()


def claimed(store: Store, count: int, prefix: str = "job") -> list[Claim]:
    ids = [f"{prefix}-{n}" for n in range(count)]
    store.enqueue("q", [NewJob(id, encode(Job(id, "q", "shop.work", b"[[],{}]", 1))) for id in ids])
    return list(store.claim("q", "worker", count, lease=60_000).claims)


def go_deaf(proxy: Proxy, near: Store, script: str, *, short: bool = True) -> None:
    """The server runs the script, and nobody hears what it says."""
    sent = scripts.load(script, short=short)
    near.transport.client.script_load(sent.source)
    proxy.lose_replies(10**9, containing=sent.sha)


def script_of(verb: str) -> str:
    """The script of a verb that ends attempts."""
    return "complete" if verb == "complete" else "settle"


def in_a_thread(do: Callable[[], object]) -> object:
    answers: list[object] = []
    thread = Thread(target=lambda: answers.append(do()))
    thread.start()
    thread.join(60)
    return answers[0]


@pytest.mark.accepts("K06", "G04")
@pytest.mark.parametrize("verb", ENDS)
def test_an_end_made_again_by_another_thread_after_other_calls_gets_its_first_answer(
    far: Store, near: Store, proxy: Proxy, verb: str
) -> None:
    claims, others = claimed(near, 3), claimed(near, 2, "other")
    go_deaf(proxy, near, script_of(verb))
    with pytest.raises(StoreUnavailable):
        ENDS[verb](far, claims)
    assert near.get("q", "job-0").state is not State.RUNNING  # type: ignore[union-attr]
    proxy.heal()
    for other in others:
        assert ENDS[verb](far, [other]) == HELD[verb]
    assert in_a_thread(lambda: ENDS[verb](far, claims)) == HELD[verb]
    assert near.stats(["q"])[0].counts["running"] == (0 if verb == "complete" else 2)


@pytest.mark.accepts("K06", "G04")
def test_ends_and_a_claim_in_one_round_trip_get_their_first_answers_when_each_is_made_again(
    far: Store, near: Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims, waiting = claimed(near, 2), [f"later-{n}" for n in range(3)]
    near.kill("q", ["job-1"], "by hand")
    near.enqueue("q", [NewJob(id, encode(Job(id, "q", "shop.work", b"[[],{}]", 1))) for id in waiting])
    completion = Completion("q", [Completed(claim, b"1") for claim in claims])
    go_deaf(proxy, near, "claim", short=False)
    go_deaf(proxy, near, "complete", short=False)
    with monkeypatch.context() as patched:
        patched.setattr(transport, "packed_with_source", transport.packed_call)  # the server knows both scripts
        with pytest.raises(StoreUnavailable):
            far.claim("q", "worker", 2, lease=60_000, completion=completion)
    assert completion.stale is None
    proxy.heal()
    assert in_a_thread(lambda: far.complete("q", completion.done)) == ["job-1"]
    assert [claim.id for claim in far.claim("q", "worker", 2, lease=60_000).claims] == waiting[:2]
    assert near.stats(["q"])[0].counts["running"] == 2


@pytest.mark.accepts("K06", "G04")
def test_a_batch_of_ends_made_again_gets_its_first_answers_and_a_later_copy_changes_nothing(
    far: Store, near: Store, proxy: Proxy
) -> None:
    claims, others = claimed(near, 5), claimed(near, 2, "other")
    near.kill("q", ["job-2"], "by hand")
    verbs = ("retry", "snooze", "retry", "bury", "discard")
    batch = [
        Ended(claim, verb, None if verb == "snooze" else FAILED, 5_000)
        for claim, verb in zip(claims, verbs, strict=True)
    ]
    go_deaf(proxy, near, "settle")
    with pytest.raises(StoreUnavailable):
        far.settle("q", batch)
    proxy.heal()
    before = [near.get("q", claim.id) for claim in claims]
    assert far.settle("q", [Ended(others[0], "bury", FAILED)]) == [State.DEAD]
    answers = [State.RETRY, State.SCHEDULED, None, State.DEAD, State.CANCELLED]
    assert in_a_thread(lambda: far.settle("q", batch)) == answers
    assert far.settle("q", batch) == [None] * 5, "answered once: this is another call"
    assert far.settle("q", [batch[3], Ended(others[1], "bury", FAILED), batch[0]]) == [None, State.DEAD, None]
    assert [near.get("q", claim.id) for claim in claims] == before
    assert near.stats(["q"])[0].totals["failed"] == 4, "two of this batch, and two others"


OUTCOMES: dict[str, tuple[Outcome, list[str]]] = {
    "complete": (Succeeded(b"1"), ["job_succeeded"]),
    "retry": (RetryIn(5_000, FAILED), ["job_failed", "job_retried"]),
    "snooze": (SnoozeFor(5_000), []),
    "bury": (Dead(FAILED), ["job_dead"]),
    "discard": (Cancelled(FAILED), ["job_cancelled"]),
}


@pytest.fixture
def told() -> Iterator[list[tuple[str, str]]]:
    """What receivers are told: (signal, id of the job)."""
    heard: list[tuple[str, str]] = []

    def receiver_of(name: str) -> Callable[..., None]:
        return lambda sender, job_id, **_: heard.append((name, job_id))

    names = ("job_succeeded", "job_failed", "job_retried", "job_dead", "job_cancelled")
    receivers = {name: receiver_of(name) for name in names}
    for name, receiver in receivers.items():
        getattr(signals, name).connect(receiver)
    yield heard
    for name, receiver in receivers.items():
        getattr(signals, name).disconnect(receiver)


@pytest.mark.accepts("G04", "R31")
@pytest.mark.parametrize("verb", OUTCOMES)
def test_each_end_is_told_once_and_nobody_is_said_to_have_lost_a_claim(
    far: Store,
    near: Store,
    proxy: Proxy,
    told: list[tuple[str, str]],
    caplog: pytest.LogCaptureFixture,
    verb: str,
) -> None:
    outcome, expected = OUTCOMES[verb]
    claims, settler = claimed(near, 3), Settler(far)
    go_deaf(proxy, near, script_of(verb))
    settler.settle_now([Attempted(claim, outcome, "shop.work", error="no") for claim in claims])
    assert near.stats(["q"])[0].counts["running"] == 0
    assert told == []
    proxy.heal()
    settler.settle_now([Attempted(claim, outcome, "shop.work", error="no") for claim in claimed(near, 2, "other")])

    wait_until(lambda: settler.is_idle, "everything is settled", seconds=10)
    ids = [claim.id for claim in claims] + ["other-0", "other-1"]
    wait_until(lambda: len(told) >= len(expected) * len(ids), "receivers, on their own thread, are told of all")
    assert sorted(told) == sorted((signal, id) for signal in expected for id in ids)
    assert "claim was lost" not in caplog.text
