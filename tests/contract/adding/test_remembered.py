"""An id that a caller gave adds one job, and no other while it is remembered."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Added, State
from django_jobs.stores.values.answers import RememberedId
from tests.contract.acts import FAILED, Q, claim, complete, enqueue, finish, ids_in, info, start, state_of, totals

DAY = 86_400_000
DIGEST = "d" * 20


@pytest.fixture
def given(make_job):
    """A job whose id its caller gave; each call is another one with the same id."""

    def make(id="charge-7", **fields):
        return make_job(id, meta={"call": str(object())}, **{"digest": DIGEST, **fields})

    return make


@pytest.fixture
def small(make_store):
    """A store whose history holds one succeeded job."""
    return make_store(history=1, dead=1)


def outrun(store, make_job, clock, n=3):
    """So many other jobs succeed."""
    for _ in range(n):
        clock.advance(1)
        finish(store, State.SUCCEEDED, make_job())


class TestAnIdThatWasGiven:
    @pytest.mark.accepts("K08")
    def test_is_known_when_its_job_has_left_the_history(self, small, make_job, given, clock):
        finish(small, State.SUCCEEDED, given())
        outrun(small, make_job, clock)
        assert small.get(Q, "charge-7") is None
        assert enqueue(small, given()) == [Added.EXISTS]
        assert state_of(small, "charge-7") is None
        assert totals(small)["enqueued"] == 4

    @pytest.mark.parametrize("once", [False, True])
    def test_is_known_to_a_first_sending_that_comes_late(self, small, make_job, given, clock, once):
        """The caller took it for lost and sent the job again under the id of the error."""
        first = make_job("charge-7", at_most_once=once, digest=DIGEST if once else "")
        finish(small, State.SUCCEEDED, given())
        outrun(small, make_job, clock)
        assert enqueue(small, first) == [Added.EXISTS]
        assert enqueue(small, first, make_job("other"), make_job()) == [Added.EXISTS, Added.ADDED, Added.ADDED]
        assert state_of(small, "charge-7") is None

    def test_is_remembered_for_its_time_after_the_end(self, small, make_job, given, clock):
        enqueue(small, given())
        clock.advance(3 * DAY)
        small.prune(Q)
        complete(small, *claim(small))
        ended = clock.now
        outrun(small, make_job, clock)
        assert small.remembered(Q, "charge-7") == RememberedId(DIGEST, State.SUCCEEDED, ended)
        clock.now = ended + DAY - 1
        small.prune(Q)
        assert enqueue(small, given()) == [Added.EXISTS]
        clock.advance(1)
        assert small.remembered(Q, "charge-7") is None
        assert enqueue(small, given()) == [Added.ADDED]

    def test_is_forgotten_by_prune_when_its_time_is_over(self, small, make_job, given, clock):
        finish(small, State.SUCCEEDED, *[given(f"id-{n}") for n in range(5)])
        outrun(small, make_job, clock)
        clock.advance(DAY)
        assert [small.prune(Q, limit=2)["remembered"] for _ in range(4)] == [2, 2, 1, 0]

    def test_is_not_forgotten_while_its_job_is_there(self, small, make_job, given, clock):
        enqueue(small, given())
        for _ in range(3):
            clock.advance(DAY)
            small.prune(Q)
        assert small.remembered(Q, "charge-7").state is None
        finish(small, State.SUCCEEDED, make_job())
        complete(small, *claim(small))
        outrun(small, make_job, clock)
        assert enqueue(small, given()) == [Added.EXISTS]

    @pytest.mark.parametrize("state", [State.DEAD, State.CANCELLED])
    def test_is_known_when_its_job_was_pruned(self, small, make_job, given, clock, state):
        finish(small, state, given())
        ended = clock.now
        clock.advance(1)
        finish(small, state, make_job(), make_job())
        clock.advance(120_000)
        small.prune(Q)
        assert small.remembered(Q, "charge-7") == RememberedId(DIGEST, state, ended)
        assert enqueue(small, given()) == [Added.EXISTS]

    @pytest.mark.parametrize("state", [None, State.SUCCEEDED, State.DEAD])
    def test_is_known_when_its_job_was_deleted(self, store, given, clock, state):
        if state is None:
            enqueue(store, given())
        else:
            finish(store, state, given())
        ended = clock.now
        clock.advance(0 if state is None else 1000)
        assert store.delete(Q, ["charge-7"]) == ["charge-7"]
        assert store.remembered(Q, "charge-7") == RememberedId(DIGEST, state or State.CANCELLED, ended)
        assert enqueue(store, given()) == [Added.EXISTS]

    def test_is_known_when_its_result_was_kept_long_enough(self, store, given, clock):
        finish(store, State.SUCCEEDED, given(keep_result=5000))
        ended = clock.now
        clock.advance(6000)
        store.prune(Q)
        assert state_of(store, "charge-7") is None
        assert store.remembered(Q, "charge-7") == RememberedId(DIGEST, State.SUCCEEDED, ended)

    def test_counts_from_the_last_end_of_a_job_that_was_revived(self, small, make_job, given, clock):
        (claimed,) = start(small, given())
        small.bury(claimed, FAILED)
        clock.advance(DAY - 1)
        small.revive(Q, ["charge-7"])
        complete(small, *claim(small))
        outrun(small, make_job, clock)
        clock.advance(DAY - 10)
        small.prune(Q)
        assert enqueue(small, given()) == [Added.EXISTS]

    def test_of_another_queue_is_another(self, small, make_job, given, clock):
        finish(small, State.SUCCEEDED, given())
        outrun(small, make_job, clock)
        assert small.enqueue("other", [given()]) == [Added.ADDED]

    def test_takes_no_room_in_a_full_queue(self, small, make_job, given, clock):
        finish(small, State.SUCCEEDED, given())
        outrun(small, make_job, clock)
        assert small.enqueue(Q, [given(), make_job("a", priority=1)], max_length=1) == [Added.EXISTS, Added.ADDED]
        assert ids_in(small, State.QUEUED) == ["a"]


class TestAnAnswerToAnEqualJob:
    """The call is sent twice: the caller did not learn the answer, or died before it could note it."""

    POLICIES = pytest.mark.parametrize(
        ("policy", "answer"),
        [("skip", Added.DUPLICATE), ("replace", Added.REPLACED), ("debounce", Added.REPLACED)],
    )

    @POLICIES
    @pytest.mark.parametrize("beside", [False, True])
    def test_is_the_same_when_the_holder_has_ended(self, store, make_job, given, policy, answer, beside):
        others = [make_job()] if beside else []  # not the short script
        equal = {"unique": "ab" * 32, "unique_mode": "queued"}
        enqueue(store, make_job("first", **equal))
        twice = given(**equal, on_conflict=policy)
        assert enqueue(store, twice, *others)[0] is answer
        complete(store, *claim(store, 2))
        assert enqueue(store, twice, *others)[0] is answer
        assert enqueue(store, given(digest=""))[0] is answer
        assert state_of(store, "charge-7") is None

    @pytest.mark.parametrize("beside", [False, True])
    def test_is_the_same_when_the_holder_came_with_the_same_call(self, store, make_job, given, beside):
        equal = {"unique": "ab" * 32, "unique_mode": "success"}
        both = [given("first", **equal), given(**equal), *([make_job()] if beside else [])]
        assert enqueue(store, *both)[:2] == [Added.ADDED, Added.DUPLICATE]
        complete(store, *claim(store, 2))
        assert enqueue(store, *both)[:2] == [Added.EXISTS, Added.DUPLICATE]

    @pytest.mark.parametrize("beside", [False, True])
    def test_is_not_remembered_if_the_holder_had_no_room(self, store, make_job, given, beside):
        equal = {"unique": "ab" * 32, "unique_mode": "success"}
        both = [given("first", **equal), given(**equal), *([make_job()] if beside else [])]
        enqueue(store, make_job("full"))
        assert store.enqueue(Q, both, max_length=1)[:2] == [Added.FULL, Added.FULL]
        assert enqueue(store, both[1]) == [Added.ADDED]

    def test_leaves_newer_arguments_alone(self, store, make_job, given):
        equal = {"unique": "ab" * 32, "unique_mode": "queued", "on_conflict": "replace"}
        enqueue(store, make_job("first", **equal))
        twice = given(args=b"[[1],{}]", **equal)
        enqueue(store, twice)
        enqueue(store, make_job("newer", args=b"[[2],{}]", **equal))
        assert enqueue(store, twice) == [Added.REPLACED]
        assert b"[[2],{}]" in info(store, "first").record

    def test_stays_when_a_batch_gives_the_id_up(self, store, make_job, given):
        equal = {"unique": "ab" * 32, "unique_mode": "queued"}
        enqueue(store, make_job("first", **equal))
        enqueue(store, given(**equal))
        assert store.void(Q, ["charge-7"]) == {"charge-7": None}
        assert enqueue(store, given(**equal)) == [Added.DUPLICATE]

    def test_is_forgotten_after_its_time(self, store, make_job, given, clock):
        equal = {"unique": "ab" * 32, "unique_mode": "queued"}
        enqueue(store, make_job("first", **equal))
        enqueue(store, given(**equal))
        complete(store, *claim(store))
        clock.advance(DAY)
        assert store.prune(Q)["remembered"] == 1
        assert enqueue(store, given(**equal)) == [Added.ADDED]

    def test_costs_nothing_without_an_id_of_the_callers(self, store, make_job):
        enqueue(store, make_job("first", unique="ab" * 32), make_job("second", unique="ab" * 32))
        enqueue(store, make_job("third", unique="ab" * 32))
        assert [store.remembered(Q, id) for id in ("first", "second", "third")] == [None] * 3


def test_an_ordinary_id_is_not_remembered(small, make_job, clock):
    finish(small, State.SUCCEEDED, make_job("a"))
    outrun(small, make_job, clock)
    assert small.remembered(Q, "a") is None
    assert enqueue(small, make_job("a")) == [Added.ADDED]


def test_an_id_that_was_given_up_is_refused_for_an_hour_however_short_ids_are_remembered(make_store, make_job, clock):
    store = make_store(idempotency=0)
    store.void(Q, ["a"])
    clock.advance(3_599_999)
    store.prune(Q)
    assert enqueue(store, make_job("a")) == [Added.EXISTS]
    clock.advance(1)
    assert enqueue(store, make_job("a")) == [Added.ADDED]
