"""What HISTORY and DEAD keep, and the way to the archive."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Added, State
from tests.contract.acts import (
    FAILED,
    Q,
    claim,
    complete,
    counts,
    enqueue,
    finish,
    ids_in,
    info,
    start,
    state_of,
    totals,
)

DAY = 86_400_000


class TestTheHistoryOfSucceededJobs:
    @pytest.mark.accepts("R20")
    def test_is_kept_short_by_complete_itself(self, make_store, make_job, clock):
        store = make_store(history=3)
        for n in range(5):
            finish(store, State.SUCCEEDED, make_job(str(n)))
            clock.advance(1)
        assert ids_in(store, State.SUCCEEDED) == ["2", "3", "4"]
        assert store.get(Q, "0") is None

    def test_may_be_none_at_all(self, make_store, make_job):
        store = make_store(history=0)
        finish(store, State.SUCCEEDED, make_job("a"))
        assert store.get(Q, "a") is None
        assert enqueue(store, make_job("a", name="other")) == [Added.ADDED]

    @pytest.mark.accepts("R05")
    def test_ends_by_time(self, make_store, make_job, clock):
        store = make_store(history_ttl=5000)
        finish(store, State.SUCCEEDED, make_job("old"))
        clock.advance(3000)
        finish(store, State.SUCCEEDED, make_job("new"))
        clock.advance(2001)
        assert store.prune(Q)["succeeded"] == 1
        assert ids_in(store, State.SUCCEEDED) == ["new"]

    def test_does_not_touch_results_that_are_to_be_kept(self, make_store, make_job, clock):
        store = make_store(history=1, history_ttl=5000)
        complete(store, *start(store, make_job("kept", keep_result=DAY)), result=b"42")
        finish(store, State.SUCCEEDED, make_job("a"))
        clock.advance(1)
        finish(store, State.SUCCEEDED, make_job("b"))
        assert sorted(ids_in(store, State.SUCCEEDED)) == ["b", "kept"]
        clock.advance(6000)
        store.prune(Q)
        assert info(store, "kept").result == b"42"
        clock.advance(DAY)
        assert store.prune(Q)["succeeded"] == 1
        assert counts(store) == {}


class TestPrune:
    @pytest.mark.accepts("G81")
    @pytest.mark.parametrize("state", [State.DEAD, State.CANCELLED])
    def test_keeps_the_newest_up_to_the_number_that_was_set(self, make_store, make_job, clock, state):
        store = make_store(history=2, dead=2)
        for n in range(5):
            finish(store, state, make_job(str(n)))
            clock.advance(1)
        clock.advance(60_000)
        assert store.prune(Q)[state.value] == 3
        assert ids_in(store, state) == ["3", "4"]

    def test_ends_by_time_too(self, make_store, make_job, clock):
        store = make_store(history_ttl=1000, dead_ttl=5000)
        finish(store, State.DEAD, make_job("dead"))
        finish(store, State.CANCELLED, make_job("cancelled"))
        start(store, make_job("expired", expires_at=clock.now))
        clock.advance(1001)
        store.prune(Q)
        assert counts(store) == {"dead": 1}
        clock.advance(4000)
        store.prune(Q)
        assert counts(store) == {}

    def test_never_touches_jobs_that_are_not_finished(self, make_store, make_job, clock):
        store = make_store(history=0, history_ttl=1, dead=0, dead_ttl=1)
        enqueue(store, make_job("a"))
        start(store, make_job("b"))
        clock.advance(DAY)
        store.prune(Q)
        assert sum(counts(store).values()) == 2

    @pytest.mark.accepts("G81")
    def test_counts_the_dead_it_forgets(self, make_store, make_job, clock):
        store = make_store(dead=0)
        finish(store, State.DEAD, make_job(), make_job())
        clock.advance(60_001)
        assert store.prune(Q)["dead"] == 2
        assert totals(store)["trimmed_dead"] == 2

    def test_works_in_steps(self, make_store, make_job, clock):
        store = make_store(dead=0)
        finish(store, State.DEAD, *[make_job() for _ in range(5)])
        clock.advance(60_001)
        assert [store.prune(Q, 2)["dead"] for _ in range(4)] == [2, 2, 1, 0]


class TestTheWayToTheArchive:
    @pytest.fixture
    def archiving(self, make_store):
        return make_store(archive=True, history=0)

    def test_has_every_finished_job_oldest_first(self, archiving, make_job, clock):
        job = make_job("a")
        complete(archiving, *start(archiving, job), result=b"[1]", run_ms=9)
        archiving.bury(start(archiving, make_job("b"))[0], FAILED)
        archiving.discard(start(archiving, make_job("c"))[0], FAILED)
        start(archiving, make_job("d", expires_at=clock.now))
        enqueue(archiving, make_job("e"))
        archiving.cancel(Q, ["e"])
        found = [job for _, job in archiving.archive_batch(Q, 10)]
        assert [(job.id, job.state) for job in found] == [
            ("a", State.SUCCEEDED),
            ("b", State.DEAD),
            ("c", State.CANCELLED),
            ("d", State.EXPIRED),
            ("e", State.CANCELLED),
        ]
        assert (found[0].record, found[0].result, found[0].run_ms, found[0].at) == (job.record, b"[1]", 9, clock.now)
        assert (found[1].failures, found[1].attempts[0].error_type) == (1, "ValueError")

    def test_is_only_looked_at_until_it_is_said_to_be_done(self, archiving, make_job):
        complete(archiving, *start(archiving, *[make_job(id) for id in "abc"]))
        first = archiving.archive_batch(Q, 2)
        assert archiving.archive_batch(Q, 2) == first
        archiving.archive_done(Q, [key for key, _ in first])
        archiving.archive_done(Q, [key for key, _ in first])
        assert [job.id for _, job in archiving.archive_batch(Q, 2)] == ["c"]

    def test_has_a_job_again_that_finished_again(self, archiving, make_job):
        archiving.bury(start(archiving, make_job("a"))[0], FAILED)
        archiving.revive(Q, ["a"])
        complete(archiving, *claim(archiving))
        assert [job.state for _, job in archiving.archive_batch(Q, 10)] == [State.DEAD, State.SUCCEEDED]

    def test_loses_nothing_to_a_late_word_of_another_archiver(self, archiving, make_job):
        complete(archiving, *start(archiving, *[make_job(id) for id in "abc"]))
        late = [key for key, _ in archiving.archive_batch(Q, 2)]
        archiving.archive_done(Q, [key for key, _ in archiving.archive_batch(Q, 3)])
        complete(archiving, *start(archiving, *[make_job(id) for id in "xyz"]))
        archiving.archive_done(Q, late)
        assert [job.id for _, job in archiving.archive_batch(Q, 9)] == ["x", "y", "z"]

    def test_is_read_on_while_the_first_jobs_are_written(self, archiving, make_job):
        complete(archiving, *start(archiving, *[make_job(id) for id in "abc"]))
        first = archiving.archive_batch(Q, 2)
        assert archiving.archive_batch(Q, 2, skip=2) == archiving.archive_batch(Q, 3)[2:]
        following = archiving.archive_batch(Q, 2, skip=2)
        archiving.archive_done(Q, [key for key, _ in first])
        archiving.archive_done(Q, [key for key, _ in following])
        assert archiving.archive_batch(Q, 2) == []

    def test_is_open_to_one_archiver_at_a_time(self, archiving, make_job, clock):
        assert archiving.archive_turns([Q], "one", 1000) == []
        complete(archiving, *start(archiving, make_job("a")))
        assert archiving.archive_turns(["other", Q], "one", 1000) == [Q]
        assert archiving.archive_turns([Q], "two", 1000) == []
        clock.advance(999)
        assert archiving.archive_turns([Q], "one", 1000) == [Q]
        clock.advance(999)
        assert archiving.archive_turns([Q], "two", 1000) == []
        clock.advance(1)
        assert archiving.archive_turns([Q], "two", 1000) == [Q]
        assert archiving.archive_turns([Q], "one", 1000) == []

    def test_is_bounded_and_counts_what_is_left_out(self, make_store, make_job):
        store = make_store(archive=True, backlog=3)
        complete(store, *start(store, *[make_job(id) for id in "ab"]))
        store.bury(start(store, make_job("c"))[0], FAILED)
        complete(store, *start(store, *[make_job(id) for id in "de"]))
        store.bury(start(store, make_job("f"))[0], FAILED)
        assert [job.id for _, job in store.archive_batch(Q, 9)] == ["a", "b", "c"]
        assert (totals(store)["not_archived"], store.stats([Q])[0].unarchived) == (3, 3)
        assert (state_of(store, "d"), state_of(store, "f")) == (State.SUCCEEDED, State.DEAD)
        store.archive_done(Q, [key for key, _ in store.archive_batch(Q, 1)])
        finish(store, State.SUCCEEDED, make_job("g"))
        assert [job.id for _, job in store.archive_batch(Q, 9)] == ["b", "c", "g"]

    def test_is_empty_where_nobody_archives(self, store, make_job):
        finish(store, State.DEAD, make_job())
        assert store.archive_batch(Q, 10) == []
