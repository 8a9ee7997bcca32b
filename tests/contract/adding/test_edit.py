"""What `edit` promises: a waiting job gets other arguments where it is, and its key and limit follow."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Added, Edited, State
from tests.contract.acts import FAILED, Q, claim, claim_ids, enqueue, finish, ids_in, info, start, state_of

KEY, OTHER = "ab" * 32, "cd" * 32
DAY = 86_400_000


@pytest.fixture
def edit(store, make_job):
    """Edit job `id`, as it is now, to what `make_job` makes of these."""

    def act(id, **given):
        return store.edit(Q, id, make_job(id, **given).record, was=info(store, id).record)

    return act


def locked(store, make_job, key) -> bool:
    """Is the key held?  Asked by trying to enqueue an equal job, which is put away again."""
    answer = enqueue(store, make_job("probe", unique=key))
    store.delete(Q, ["probe"])
    return answer == [Added.DUPLICATE]


@pytest.mark.accepts("K31")
@pytest.mark.parametrize("state", [State.SCHEDULED, State.QUEUED, State.RETRY, State.BLOCKED])
def test_a_job_that_waits_has_the_new_arguments_and_keeps_its_place(store, make_job, edit, clock, state):
    job = make_job("a", args=b"[[1],{}]", name="typed", run_at=clock.now + 1000 if state is State.SCHEDULED else 0)
    enqueue(store, job, make_job("behind"))
    if state is State.RETRY:
        store.retry(claim(store)[0], FAILED, 5000)
    if state is State.BLOCKED:
        store.pause(Q, name="typed")
        claim(store)
    before = info(store, "a")

    assert edit("a", args=b"[[2],{}]", name="typed") is Edited.EDITED

    after = info(store, "a")
    assert after == before._replace(record=make_job("a", args=b"[[2],{}]", name="typed").record)
    if state is State.QUEUED:
        assert claim_ids(store, 2) == ["a", "behind"]


@pytest.mark.parametrize("state", [State.RUNNING, State.SUCCEEDED, State.DEAD, State.CANCELLED])
def test_a_job_that_runs_or_has_ended_is_left_alone(store, make_job, edit, state):
    if state is State.RUNNING:
        start(store, make_job("a"))
    else:
        finish(store, state, make_job("a"))
    before = info(store, "a")
    assert edit("a", args=b"[[2],{}]") is Edited.MOVED
    assert info(store, "a") == before


def test_what_is_gone_is_told(store, make_job):
    assert store.edit(Q, "a", make_job("a").record, was=b"") is Edited.GONE


def test_of_two_edits_of_the_same_record_one_wins_and_is_safe_to_send_again(store, make_job):
    enqueue(store, make_job("a"))
    was = info(store, "a").record
    one, two = (make_job("a", args=args).record for args in (b"[[1],{}]", b"[[2],{}]"))
    assert store.edit(Q, "a", one, was=was) is Edited.EDITED
    assert store.edit(Q, "a", two, was=was) is Edited.CHANGED
    claim(store)
    assert store.edit(Q, "a", one, was=was) is Edited.EDITED
    assert info(store, "a").record == one


class TestAUniqueKey:
    @pytest.mark.parametrize("mode", ["queued", "running", "success"])
    def test_follows_the_arguments_and_frees_the_old_one(self, store, make_job, edit, mode):
        enqueue(store, make_job("a", unique=KEY, unique_mode=mode))
        assert edit("a", unique=OTHER, unique_mode=mode) is Edited.EDITED
        assert (locked(store, make_job, KEY), locked(store, make_job, OTHER)) == (False, True)

    def test_that_another_job_has_is_refused_and_nothing_changes(self, store, make_job, edit):
        enqueue(store, make_job("a", unique=KEY), make_job("b", unique=OTHER))
        before = info(store, "a")
        assert edit("a", unique=OTHER, args=b"[[2],{}]") is Edited.DUPLICATE
        assert info(store, "a") == before
        assert locked(store, make_job, KEY)

    def test_keeps_what_is_left_of_its_period(self, store, make_job, edit, clock):
        given = {"unique_mode": "period", "unique_for": DAY, "run_at": clock.now + 2 * DAY}
        enqueue(store, make_job("a", unique=KEY, **given))
        clock.advance(DAY - 1000)
        edit("a", unique=OTHER, **given)
        assert (locked(store, make_job, KEY), locked(store, make_job, OTHER)) == (False, True)
        clock.advance(1000)
        assert not locked(store, make_job, OTHER)

    def test_is_freed_when_the_edited_job_ends(self, store, make_job, edit):
        enqueue(store, make_job("a", unique=KEY))
        edit("a", unique=OTHER)
        store.cancel(Q, ["a"])
        assert not locked(store, make_job, OTHER)


class TestALimit:
    def test_that_no_longer_concerns_a_blocked_job_lets_it_go_in_its_turn(self, store, make_job, edit):
        enqueue(store, *[make_job(id, limit_key="one", limit=1) for id in ("a", "b")])
        claim(store, 2)
        assert state_of(store, "b") is State.BLOCKED
        enqueue(store, make_job("behind"))
        assert edit("b", limit_key="two", limit=1) is Edited.EDITED
        assert ids_in(store, State.BLOCKED) == []
        assert claim_ids(store, 2) == ["b", "behind"]

    def test_counts_an_edited_job_under_its_new_key(self, store, make_job, edit):
        enqueue(store, *[make_job(id, limit_key=key, limit=1) for id, key in (("a", "one"), ("b", "two"))])
        edit("b", limit_key="one", limit=1)
        assert claim_ids(store, 2) == ["a"]
        assert state_of(store, "b") is State.BLOCKED

    def test_whose_free_slot_an_edited_job_does_not_take_goes_to_the_next(self, store, make_job, edit):
        enqueue(store, *[make_job(id, limit_key="one", limit=1) for id in ("a", "b", "c")])
        (held,) = claim(store, 3)
        store.bury(held, FAILED)  # lets "b" in
        assert edit("b", limit_key="two", limit=1) is Edited.EDITED
        assert sorted(claim_ids(store, 3)) == ["b", "c"]

    def test_does_not_free_what_a_pause_holds(self, store, make_job, edit):
        enqueue(store, make_job("a", name="closed", limit_key="one", limit=1))
        store.pause(Q, name="closed")
        claim(store)
        edit("a", name="closed", limit_key="two", limit=1)
        assert state_of(store, "a") is State.BLOCKED
        store.resume(Q, name="closed")
        assert claim_ids(store) == ["a"]
