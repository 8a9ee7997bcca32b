"""Unique jobs: who holds a lock, for how long, and what becomes of an equal job."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Added, State
from tests.contract.acts import FAILED, Q, claim, complete, enqueue, info, start, state_of

KEY = "ab" * 32
OTHER = "cd" * 32
DAY = 86_400_000


@pytest.fixture
def unique(make_job):
    """A job with the lock KEY."""

    def make(id, mode="queued", **given):
        return make_job(id, unique=KEY, unique_mode=mode, **given)

    return make


@pytest.fixture
def taken(store, unique):
    """Is the lock held?  Asked by trying to enqueue an equal job, which is put away again."""

    def ask():
        answer = enqueue(store, unique("probe"))
        store.delete(Q, ["probe"])
        return answer == [Added.DUPLICATE]

    return ask


class TestAnEqualJob:
    @pytest.mark.accepts("G08", "G29", "G62")
    def test_is_a_duplicate_while_the_first_waits(self, store, unique):
        assert enqueue(store, unique("a")) == [Added.ADDED]
        assert enqueue(store, unique("b")) == [Added.DUPLICATE]
        assert store.get(Q, "b") is None

    @pytest.mark.accepts("G30", "G61")
    def test_is_a_duplicate_of_a_scheduled_one_too(self, store, unique, clock):
        enqueue(store, unique("a", run_at=clock.now + 1000))
        assert enqueue(store, unique("b")) == [Added.DUPLICATE]

    @pytest.mark.accepts("G31")
    def test_is_another_with_another_key(self, store, unique, make_job):
        enqueue(store, unique("a"))
        assert enqueue(store, make_job("b", unique="cd" * 32)) == [Added.ADDED]

    def test_is_another_in_another_queue(self, store, unique):
        enqueue(store, unique("a"))
        assert store.enqueue("other", [unique("b")]) == [Added.ADDED]


class TestReplace:
    @pytest.mark.accepts("G32", "G33")
    @pytest.mark.parametrize("policy", ["replace", "debounce"])
    def test_gives_the_waiting_job_the_new_arguments(self, store, unique, clock, policy):
        enqueue(store, unique("a", args=b"[[1],{}]"))
        assert enqueue(store, unique("b", args=b"[[2],{}]", on_conflict=policy)) == [Added.REPLACED]
        assert store.get(Q, "b") is None
        assert info(store, "a").record == unique("a", args=b"[[2],{}]", asked_at=clock.now).record
        assert info(store, "a").state is State.QUEUED

    @pytest.mark.parametrize("policy", ["replace", "debounce"])
    def test_of_a_call_that_comes_late_changes_nothing_that_a_newer_call_has_changed(
        self, store, unique, clock, policy
    ):
        def call(number, asked_at=0):
            job = unique(f"call {number}", args=b"[[%d],{}]" % number, run_at=clock.now + 9000 + number)
            return enqueue(store, job._replace(on_conflict=policy, asked_at=asked_at))

        begun = clock.now
        clock.now += 1000
        assert call(1, begun) == [Added.ADDED]
        assert call(2, begun + 1) == [Added.REPLACED], "both are late, and the second is newer"
        assert call(3, begun) == [Added.DUPLICATE]
        clock.now += 1000
        assert call(4) == [Added.REPLACED]
        assert call(5, clock.now - 1) == [Added.DUPLICATE]
        held = info(store, "call 1")
        assert held.record.endswith(b"[[4],{}]")
        assert held.at == clock.now + 9004 if policy == "debounce" else held.at == begun + 1000 + 9001

    def test_keeps_the_run_time(self, store, unique, clock):
        enqueue(store, unique("a", run_at=clock.now + 1000))
        enqueue(store, unique("b", run_at=clock.now + 9000, on_conflict="replace"))
        assert info(store, "a").at == clock.now + 1000

    def test_is_a_duplicate_when_the_holder_has_started(self, store, unique):
        start(store, unique("a", "running", args=b"[[1],{}]"))
        answer = enqueue(store, unique("b", "running", args=b"[[2],{}]", on_conflict="replace"))
        assert answer == [Added.DUPLICATE]
        assert b"[[1],{}]" in info(store, "a").record

    def test_works_for_a_job_that_waits_for_its_retry(self, store, unique, clock):
        (claimed,) = start(store, unique("a"))
        store.retry(claimed, FAILED, 5000)
        assert enqueue(store, unique("b", args=b"[[2],{}]", on_conflict="replace")) == [Added.REPLACED]
        assert state_of(store, "a") is State.RETRY
        assert b"[[2],{}]" in info(store, "a").record


class TestDebounce:
    @pytest.mark.parametrize("first", [0, 1000])
    def test_pushes_the_run_time_back(self, store, unique, clock, first):
        enqueue(store, unique("a", run_at=first and clock.now + first))
        answer = enqueue(store, unique("b", run_at=clock.now + 9000, on_conflict="debounce"))
        assert answer == [Added.REPLACED]
        assert (info(store, "a").state, info(store, "a").at) == (State.SCHEDULED, clock.now + 9000)


class TestALockOfModeQueued:
    @pytest.mark.accepts("G63")
    def test_is_free_as_soon_as_the_job_starts(self, store, unique, taken):
        enqueue(store, unique("a"))
        assert taken()
        claim(store)
        assert not taken()

    def test_is_taken_again_when_the_job_goes_to_retry(self, store, unique, taken):
        (claimed,) = start(store, unique("a"))
        store.retry(claimed, FAILED, 1000)
        assert taken()

    def test_stays_with_another_who_took_it_meanwhile(self, store, unique):
        (claimed,) = start(store, unique("a"))
        enqueue(store, unique("b"))
        assert store.retry(claimed, FAILED, 1000) is State.RETRY
        store.delete(Q, ["a"])
        assert enqueue(store, unique("c", on_conflict="replace")) == [Added.REPLACED]

    @pytest.mark.parametrize("how", ["release", "release_worker", "recover", "snooze"])
    def test_is_taken_again_when_the_job_comes_back(self, store, unique, taken, how):
        claims = start(store, unique("a"))
        {
            "release": lambda: store.release(Q, claims),
            "release_worker": lambda: store.release_worker(Q, "w"),
            "recover": lambda: store.recover(Q, worker="w"),
            "snooze": lambda: store.snooze(claims[0], 1000),
        }[how]()
        assert taken()

    def test_is_held_while_the_job_is_blocked(self, store, unique, make_job, taken):
        enqueue(store, make_job(limit_key="k", limit=1), unique("a", limit_key="k", limit=1))
        claim(store, 2)
        assert state_of(store, "a") is State.BLOCKED
        assert taken()


@pytest.mark.parametrize("mode", ["running", "success"])
class TestALockOfModeRunningOrSuccess:
    def test_is_held_while_the_job_runs_and_waits_for_a_retry(self, store, unique, mode, taken):
        (claimed,) = start(store, unique("a", mode))
        assert taken()
        store.retry(claimed, FAILED, 1000)
        assert taken()

    def test_is_free_when_the_job_has_succeeded(self, store, unique, mode, taken):
        complete(store, *start(store, unique("a", mode)))
        assert not taken()

    def test_is_free_when_the_job_is_dead(self, store, unique, mode, taken):
        store.bury(start(store, unique("a", mode))[0], FAILED)
        assert not taken()


@pytest.mark.parametrize("mode", ["queued", "running", "success"])
class TestEveryPathThatEndsAJob:
    @pytest.mark.accepts("G75")
    def test_frees_the_lock_when_it_is_discarded(self, store, unique, mode, taken):
        store.discard(start(store, unique("a", mode))[0], FAILED)
        assert not taken()

    @pytest.mark.accepts("G75")
    @pytest.mark.parametrize("verb", ["cancel", "delete", "kill"])
    def test_frees_the_lock_when_a_person_ends_it(self, store, unique, mode, taken, verb):
        enqueue(store, unique("a", mode))
        getattr(store, verb)(Q, ["a"], *(["reason"] if verb == "kill" else []))
        assert not taken()

    def test_frees_the_lock_when_it_expires(self, store, unique, mode, taken, clock):
        enqueue(store, unique("a", mode, expires_at=clock.now + 1))
        clock.advance(1)
        claim(store)
        assert not taken()

    def test_frees_the_lock_when_its_worker_died_too_often(self, make_store, unique, mode):
        store = make_store(max_crashes=1)
        start(store, unique("a", mode))
        store.recover(Q, worker="w")
        assert enqueue(store, unique("b")) == [Added.ADDED]

    def test_never_frees_the_lock_of_another(self, store, unique, mode):
        (claimed,) = start(store, unique("a", "queued"))
        enqueue(store, unique("b", mode))
        complete(store, claimed)
        assert enqueue(store, unique("c")) == [Added.DUPLICATE]

    def test_takes_the_lock_again_when_it_is_revived(self, store, unique, mode, taken):
        enqueue(store, unique("a", mode))
        store.cancel(Q, ["a"])
        assert not taken()
        store.revive(Q, ["a"])
        assert taken()


class TestARevivalWithAnotherKey:
    """A person has changed what the job is unique by."""

    @pytest.mark.parametrize("key", [OTHER, None])
    @pytest.mark.parametrize("mode", ["queued", "running", "success", "period"])
    def test_frees_the_old_key_and_takes_the_new(self, store, make_job, clock, mode, key):
        old = make_job("a", run_at=clock.now + 1000, unique=KEY, unique_mode=mode, unique_for=DAY)
        enqueue(store, old)
        assert store.revive(Q, ["a"], record=make_job("a", unique=key).record) == ["a"]
        assert enqueue(store, make_job("b", unique=KEY)) == [Added.ADDED]
        assert enqueue(store, make_job("c", unique=OTHER)) == [Added.DUPLICATE if key else Added.ADDED]

    def test_leaves_the_old_key_to_another_who_holds_it(self, store, unique, make_job):
        (claimed,) = start(store, unique("a"))
        enqueue(store, unique("b"))
        store.bury(claimed, FAILED)
        store.revive(Q, ["a"], record=make_job("a", unique=OTHER).record)
        assert enqueue(store, unique("c")) == [Added.DUPLICATE]

    def test_leaves_the_new_key_to_another_who_holds_it_and_changes_nothing(self, store, unique, make_job):
        store.bury(start(store, unique("a"))[0], FAILED)
        enqueue(store, make_job("b", unique=OTHER))
        before = info(store, "a")
        assert store.revive(Q, ["a"], record=make_job("a", unique=OTHER).record) == []
        assert info(store, "a") == before
        assert enqueue(store, unique("c")) == [Added.ADDED]

    def test_of_a_job_that_lost_its_key_takes_it_where_it_is_free_again(self, store, unique, clock):
        (claimed,) = start(store, unique("a"))
        enqueue(store, unique("b"))
        store.retry(claimed, FAILED, 60_000)
        store.delete(Q, ["b"])
        store.revive(Q, ["a"])
        assert enqueue(store, unique("c")) == [Added.DUPLICATE]


class TestFromTheTimeAtWhichAJobExpires:
    """Nobody has claimed since, so it still waits."""

    @pytest.fixture(params=[0, 5], ids=["queued", "scheduled"])
    def late(self, request, store, unique, clock):
        enqueue(store, unique("late", "running", expires_at=clock.now + 10, run_at=clock.now + request.param))
        clock.advance(10)

    @pytest.mark.parametrize("policy", ["skip", "replace", "debounce"])
    def test_its_key_is_free(self, store, unique, late, policy):
        before = info(store, "late")
        assert enqueue(store, unique("a", "running")._replace(on_conflict=policy)) == [Added.ADDED]
        assert info(store, "late") == before
        assert [job.id for job in claim(store, 2)] == ["a"]
        assert state_of(store, "late") is State.EXPIRED
        assert enqueue(store, unique("b", "running")) == [Added.DUPLICATE]

    def test_a_retry_by_hand_of_another_may_have_its_key(self, store, unique, clock):
        store.bury(start(store, unique("dead", "running"))[0], FAILED)
        enqueue(store, unique("late", "running", expires_at=clock.now + 10))
        assert store.revive(Q, ["dead"]) == []
        clock.advance(10)
        assert store.revive(Q, ["dead"]) == ["dead"]

    @pytest.mark.parametrize("way", ["revive", "edit", "retry", "release", "recover"])
    def test_a_job_that_waits_again_has_its_key(self, store, unique, make_job, clock, way):
        (claimed,) = start(store, unique("a", "queued"))
        if way == "edit":
            enqueue(store, make_job("edited", unique=OTHER))
        enqueue(store, unique("late", "running", expires_at=clock.now + 10))
        clock.advance(10)
        if way == "revive":
            store.bury(claimed, FAILED)
            assert store.revive(Q, ["a"]) == ["a"]
        elif way == "edit":
            was, record = info(store, "edited").record, unique("edited", "queued", args=b"[[2],{}]").record
            assert store.edit(Q, "edited", record, was=was) == "edited"
        elif way == "retry":
            store.retry(claimed, FAILED, 0)
        elif way == "release":
            store.release(Q, [claimed])
        else:
            store.recover(Q, worker="w")
        assert enqueue(store, unique("b", "running")) == [Added.DUPLICATE]

    def test_it_is_not_retried_by_hand_beside_the_job_that_has_its_key(self, store, unique, late):
        before = info(store, "late")
        enqueue(store, unique("a", "running"))
        assert store.revive(Q, ["late"]) == []
        assert info(store, "late") == before
        assert [job.id for job in claim(store, 2)] == ["a"]

    def test_it_is_not_put_off_and_not_edited(self, store, unique, late, clock):
        was = info(store, "late").record
        assert store.reschedule(Q, ["late"], clock.now + 1000) == []
        assert store.edit(Q, "late", unique("late", args=b"[[1],{}]").record, was=was) == "moved"
        assert claim(store) == []
        assert state_of(store, "late") is State.EXPIRED

    def test_one_that_has_begun_keeps_its_key(self, store, unique, clock):
        (claimed,) = start(store, unique("a", "running", expires_at=clock.now + 10))
        clock.advance(10)
        assert enqueue(store, unique("b", "running")) == [Added.DUPLICATE]
        store.snooze(claimed, 1000)
        assert enqueue(store, unique("b", "running")) == [Added.DUPLICATE]
        assert store.reschedule(Q, ["a"], clock.now + 1000) == ["a"]


class TestAJobThatEndedAndLostItsKey:
    @pytest.mark.parametrize("mode", ["queued", "running", "success", "period"])
    def test_is_not_revived_beside_the_job_that_has_it(self, store, unique, clock, mode):
        (claimed,) = start(store, unique("a", mode, unique_for=1))
        store.bury(claimed, FAILED)
        clock.advance(10)
        assert enqueue(store, unique("b", mode, unique_for=DAY)) == [Added.ADDED]
        before = info(store, "a")
        assert store.revive(Q, ["a"]) == []
        assert info(store, "a") == before
        assert store.key_holders(Q, {"a": before.record}) == {"a": "b"}
        store.delete(Q, ["b"])
        assert store.revive(Q, ["a"]) == ["a"]

    def test_of_two_with_one_key_one_is_revived(self, store, unique):
        for id in ("a", "b"):
            store.bury(start(store, unique(id, "running"))[0], FAILED)
        assert len(store.revive(Q, ["a", "b"])) == 1


class TestALockForAPeriod:
    @pytest.fixture
    def period(self, make_job):
        return lambda id: make_job(id, unique=KEY, unique_mode="period", unique_for=5000)

    def test_is_over_at_its_time_though_the_job_still_waits(self, store, period, clock):
        enqueue(store, period("a"))
        clock.advance(5000)
        assert enqueue(store, period("b")) == [Added.ADDED]

    def test_is_held_though_the_job_was_cancelled(self, store, period):
        enqueue(store, period("a"))
        store.cancel(Q, ["a"])
        assert enqueue(store, period("b")) == [Added.DUPLICATE]

    def test_is_held_though_the_job_left_the_history(self, make_store, period):
        store = make_store(history=0)
        complete(store, *start(store, period("a")))
        assert store.get(Q, "a") is None
        assert enqueue(store, period("b")) == [Added.DUPLICATE]

    def test_that_is_over_is_free_to_one_that_goes_to_retry(self, store, unique, period, clock):
        (claimed,) = start(store, unique("a"))
        enqueue(store, period("b"))
        clock.advance(5000)
        store.retry(claimed, FAILED, 1000)
        assert enqueue(store, unique("c")) == [Added.DUPLICATE]

    def test_is_held_until_its_time_though_an_equal_job_goes_to_retry(self, store, unique, period, clock):
        (claimed,) = start(store, unique("a"))
        enqueue(store, period("b"))
        complete(store, *claim(store))
        store.retry(claimed, FAILED, 0)
        complete(store, *claim(store))
        clock.advance(4999)
        assert enqueue(store, unique("c")) == [Added.DUPLICATE]
        clock.advance(1)
        assert enqueue(store, unique("c")) == [Added.ADDED]

    @pytest.mark.parametrize("passed", [4000, 5000])
    def test_is_not_lengthened_by_the_retry_of_its_own_job(self, store, unique, period, clock, passed):
        (claimed,) = start(store, period("a"))
        clock.advance(passed)
        store.retry(claimed, FAILED, 0)
        clock.advance(5000 - passed)
        assert enqueue(store, unique("b")) == [Added.ADDED]

    def test_is_held_while_its_own_job_waits_for_a_retry(self, store, unique, period):
        store.retry(*start(store, period("a")), FAILED, 1000)
        assert enqueue(store, unique("b")) == [Added.DUPLICATE]

    def test_goes_with_the_job_when_a_person_deletes_it(self, store, period):
        enqueue(store, period("a"))
        store.delete(Q, ["a"])
        assert enqueue(store, period("b")) == [Added.ADDED]
