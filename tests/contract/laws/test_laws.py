"""Laws that hold for every verb: a stale claim changes nothing at all."""

from __future__ import annotations

import pytest

from django_jobs.core.values import State
from tests.contract.acts import FAILED, LEASE, Q, claim, claim_alone, complete, done, enqueue, start

#: verb → (the call, the answer that says "stale")
SETTLING = {
    "complete": (lambda store, c: store.complete(Q, [done(c, result=b"1", run_ms=5)]), lambda c: [c.id]),
    "retry": (lambda store, c: store.retry(c, FAILED, 10), lambda c: None),
    "snooze": (lambda store, c: store.snooze(c, 10), lambda c: None),
    "park": (lambda store, c: store.park(c, "digest"), lambda c: None),
    "bury": (lambda store, c: store.bury(c, FAILED), lambda c: False),
    "discard": (lambda store, c: store.discard(c, FAILED), lambda c: False),
    "release": (lambda store, c: store.release(Q, [c]), lambda c: [c.id]),
    "begin": (lambda store, c: store.begin(c), lambda c: False),
    "checkin": (lambda store, c: store.checkin(c, b'{"message": "still here"}'), lambda c: False),
    "transfer": (lambda store, c: store.transfer(c, "remote:x", LEASE), lambda c: False),
}


def picture(store):
    """Everything that the contract shows of a queue."""
    pages = {state: store.page(Q, state, 0, 100) for state in State}
    details = [store.get(Q, job.id) for page in pages.values() for job in page]
    return pages, details, store.stats([Q]), store.sums([Q], 0), store.archive_batch(Q, 100), store.overdue(Q)


def _recovered(store, clock):
    clock.advance(LEASE)
    store.recover(Q)


def _running_again(store, clock):
    _recovered(store, clock)
    claim_alone(store, worker="other")


def _killed(store):
    """And its process is ended: of one that lives, the end is news (test_kill.py)."""
    store.kill(Q, ["a"], "by hand")
    store.release_worker(Q, "w")


#: how a claim is lost → what does it
LOSSES = {
    "recovered": _recovered,
    "recovered and running elsewhere": _running_again,
    "released": lambda store, clock: store.release_worker(Q, "w"),
    "released and claimed again by the same worker": lambda store, clock: (store.release_worker(Q, "w"), claim(store)),
    "killed and ended": lambda store, clock: _killed(store),
    "killed and deleted": lambda store, clock: (_killed(store), store.delete(Q, ["a"])),
    "killed and revived": lambda store, clock: (_killed(store), store.revive(Q, ["a"])),
}


@pytest.mark.accepts("R13", "K12")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("verb", SETTLING)
def test_a_lost_claim_changes_nothing(make_store, make_job, clock, verb, loss):
    store = make_store(archive=True)
    call, stale = SETTLING[verb]
    (claimed,) = start(store, make_job("a", unique="ab" * 32, unique_mode="running", limit_key="k", limit=1))
    enqueue(store, make_job("waits", limit_key="k", limit=1))
    claim(store)
    LOSSES[loss](store, clock)
    before = picture(store)
    assert call(store, claimed) == stale(claimed)
    assert picture(store) == before


@pytest.mark.accepts("P07")
@pytest.mark.parametrize("verb", SETTLING)
@pytest.mark.parametrize("token", [-1, 0, 1])
def test_a_wrong_token_changes_nothing(store, make_job, verb, token):
    call, stale = SETTLING[verb]
    (claimed,) = start(store, make_job("a"))
    forged = claimed._replace(token=claimed.token + token if token else 0)
    before = picture(store)
    assert call(store, forged) == stale(forged)
    assert picture(store) == before


@pytest.mark.parametrize("verb", [verb for verb in SETTLING if verb not in {"begin", "checkin", "transfer"}])
def test_an_end_of_an_attempt_is_counted_once(store, make_job, verb):
    """The second call is either known as a re-send or refused as stale: both change nothing."""
    call, _ = SETTLING[verb]
    (claimed,) = start(store, make_job("a"))
    call(store, claimed)
    before = picture(store)
    call(store, claimed)
    assert picture(store) == before


def test_a_job_is_in_exactly_one_state(store, make_job, clock):
    enqueue(store, *[make_job(f"l{n}", limit_key="k", limit=1) for n in range(3)])
    enqueue(store, *[make_job(str(n), run_at=clock.now + n % 2) for n in range(10)])
    complete(store, *claim(store, 4))
    seen = [job.id for state in State for job in store.page(Q, state, 0, 100)]
    assert len(seen) == len(set(seen)) == 13
