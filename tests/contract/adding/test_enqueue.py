"""What `enqueue` promises."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Added, Lane, State
from tests.contract.acts import FAILED, Q, claim, enqueue, ids_in, state_of, totals
from tests.contract.ways_back import parked, refiled, released

KEY = "ab" * 32


class TestAJobThatIsAdded:
    @pytest.mark.accepts("G28")
    def test_with_a_time_to_come_is_scheduled_for_that_time(self, store, make_job, clock):
        enqueue(store, make_job("a", run_at=clock.now + 300_000))
        assert store.get(Q, "a").state is State.SCHEDULED
        assert store.get(Q, "a").at == clock.now + 300_000

    def test_makes_its_queue_known(self, store, make_job):
        assert store.queues() == []
        store.enqueue("b", [make_job()])
        store.enqueue("a", [make_job()])
        assert sorted(store.queues()) == ["a", "b"]

    @pytest.mark.parametrize("controls", [{"alone": True}, {"at_most_once": True}])
    def test_that_needs_a_process_of_its_own_waits_in_the_lane_alone(self, store, make_job, controls):
        enqueue(store, make_job("a", **controls))
        assert store.backlog([Q], lane=Lane.ALONE) == {Q: 1}
        assert store.backlog([Q]) == {Q: 0}


class TestACallWhoseAnswersAreWaitedForLater:
    def test_gives_the_answers_that_enqueue_would_give(self, store, make_job):
        enqueue(store, make_job("there"))
        wait = store.enqueue_ahead(Q, [make_job("a"), make_job("there", args=b"[[9],{}]"), make_job("b")])
        assert wait() == [Added.ADDED, Added.EXISTS, Added.ADDED]
        assert ids_in(store, State.QUEUED) == ["there", "a", "b"]

    def test_with_keys_too(self, store, make_job):
        wait = store.enqueue_ahead(Q, [make_job("a", unique=KEY), make_job("b", unique=KEY)])
        assert wait() == [Added.ADDED, Added.DUPLICATE]

    def test_leaves_the_thread_free_for_other_calls(self, store, make_job):
        # A server without the script runs the call only when its answer is wanted.
        for number in (1, 2):
            store.enqueue_ahead("before", [make_job() for _ in range(number)])()
        first = store.enqueue_ahead(Q, [make_job("a")])
        assert enqueue(store, make_job("b")) == [Added.ADDED]
        second = store.enqueue_ahead("other", [make_job("c"), make_job("c2")])
        assert store.backlog([Q, "other"]) == {Q: 2, "other": 2}
        assert [claim.id for claim in claim(store, limit=5)] == ["a", "b"]
        assert second() == [Added.ADDED, Added.ADDED]
        assert first() == [Added.ADDED]

    def test_takes_no_more_jobs_than_enqueue(self, store, make_job):
        with pytest.raises(ValueError, match="1001"):
            store.enqueue_ahead(Q, [make_job(f"j{n}") for n in range(1001)])


class TestManyJobsInOneCall:
    def test_more_than_a_thousand_are_refused(self, store, make_job):
        with pytest.raises(ValueError, match="1000"):
            store.enqueue(Q, [make_job() for _ in range(1001)])


class TestTheSameIdAgain:
    @pytest.mark.accepts("K08")
    def test_with_the_same_bytes_is_the_same_call_and_adds_nothing(self, store, make_job):
        job = make_job("a")
        assert enqueue(store, job, job) == [Added.ADDED, Added.ADDED]
        assert enqueue(store, job) == [Added.ADDED]
        assert ids_in(store, State.QUEUED) == ["a"]
        assert totals(store)["enqueued"] == 1

    def test_with_other_bytes_exists_and_changes_nothing(self, store, make_job):
        first = make_job("a", args=b"[[1],{}]")
        enqueue(store, first)
        assert enqueue(store, make_job("a", args=b"[[2],{}]", run_at=2**41)) == [Added.EXISTS]
        assert store.get(Q, "a").record == first.record
        assert state_of(store, "a") is State.QUEUED

    def test_adds_nothing_while_the_job_runs_or_when_it_is_finished(self, store, make_job):
        job = make_job("a")
        enqueue(store, job)
        claims = claim(store)
        assert enqueue(store, job) == [Added.ADDED]
        assert state_of(store, "a") is State.RUNNING
        store.discard(claims[0], FAILED)
        assert enqueue(store, job) == [Added.ADDED]
        assert state_of(store, "a") is State.CANCELLED


class TestAQueueWithAMaximumLength:
    @pytest.mark.accepts("O03", "O05")
    @pytest.mark.parametrize("controls", [{}, {"priority": 5}, {"expires_at": 5_000_000_000_000}])
    def test_refuses_what_would_exceed_it(self, store, make_job, controls):
        two = [make_job("a", **controls), make_job("b", **controls)]
        assert store.enqueue(Q, two, max_length=2) == [Added.ADDED, Added.ADDED]
        assert store.enqueue(Q, [make_job("c", **controls)], max_length=2) == [Added.FULL]

    def test_is_free_of_late_jobs_once_they_are_expired(self, store, make_job, clock):
        over = clock.now + 5
        late = [make_job("late", expires_at=over), make_job("due", run_at=clock.now + 1, expires_at=over)]
        enqueue(store, *late, make_job("in time", expires_at=over + 1), make_job("ever"))
        assert store.expire(Q) == ([], False)
        clock.advance(5)
        assert [job.id for job in store.expire(Q)[0]] == ["due", "late"]
        assert ids_in(store, State.EXPIRED) == ["due", "late"]
        assert store.enqueue(Q, [make_job("b"), make_job("c")], max_length=3) == [Added.FULL, Added.FULL]
        assert store.enqueue(Q, [make_job("d")], max_length=3) == [Added.ADDED]
        assert store.expire(Q) == ([], False)

    def test_is_not_taken_from_jobs_that_have_begun(self, store, make_job, clock):
        enqueue(store, *(make_job(id, expires_at=clock.now + 5) for id in ("runs", "failed")))
        claims = claim(store, limit=2)
        store.retry(claims[1], FAILED, 10)
        clock.advance(5)
        assert store.expire(Q) == ([], False)
        assert state_of(store, "runs") is State.RUNNING
        assert store.get(Q, "c") is None

    @pytest.mark.parametrize("back", [released, parked, refiled])
    def test_is_free_of_late_jobs_that_came_back_without_having_begun(self, store, make_job, clock, back):
        """Their time counts wherever they wait: no claim has to meet them."""
        enqueue(store, make_job("a", expires_at=clock.now + 5))
        (claimed,) = claim(store)
        back(store, claimed, clock)
        clock.advance(5)
        assert [job.id for job in store.expire(Q)[0]] == ["a"]
        assert store.enqueue(Q, [make_job("b")], max_length=1) == [Added.ADDED]

    def test_takes_all_jobs_of_a_call_or_none(self, store, make_job):
        enqueue(store, make_job("a"))
        assert store.enqueue(Q, [make_job("b"), make_job("c")], max_length=2) == [Added.FULL, Added.FULL]
        assert ids_in(store, State.QUEUED) == ["a"]

    def test_still_knows_the_jobs_it_has(self, store, make_job):
        job = make_job("a")
        enqueue(store, job)
        assert store.enqueue(Q, [job], max_length=1) == [Added.ADDED]
        answers = store.enqueue(Q, [make_job("a", name="other"), make_job("b")], max_length=1)
        assert answers == [Added.EXISTS, Added.FULL]

    def test_counts_blocked_jobs(self, store, make_job):
        enqueue(store, *[make_job(i, limit_key="k", limit=1) for i in "ab"])
        claim(store, 2)
        assert state_of(store, "b") is State.BLOCKED
        assert store.enqueue(Q, [make_job("c")], max_length=1) == [Added.FULL]

    def test_does_not_count_running_jobs(self, store, make_job):
        enqueue(store, make_job("a"))
        claim(store)
        assert store.enqueue(Q, [make_job("b")], max_length=1) == [Added.ADDED]

    def test_has_no_room_taken_by_what_adds_nothing(self, store, make_job, clock):
        run = ("nightly", clock.now)
        enqueue(store, make_job("a", schedule_run=run))
        b = make_job("b", unique=KEY)
        jobs = [b, b, make_job("twin", unique=KEY), make_job("late", schedule_run=run), make_job("c")]
        answers = [Added.ADDED, Added.ADDED, Added.DUPLICATE, Added.ALREADY_RUN, Added.ADDED]
        assert store.enqueue(Q, jobs, max_length=3) == answers
        assert ids_in(store, State.QUEUED) == ["a", "b", "c"]

    def test_says_of_a_duplicate_what_it_is_though_others_are_refused(self, store, make_job):
        enqueue(store, make_job("a", unique=KEY))
        twin = make_job("b", unique=KEY)
        assert store.enqueue(Q, [twin, make_job("c")], max_length=2) == [Added.DUPLICATE, Added.ADDED]
        assert store.enqueue(Q, [twin, make_job("d")], max_length=2) == [Added.DUPLICATE, Added.FULL]

    def test_has_room_for_what_waits_for_its_time(self, store, make_job, clock):
        later = make_job("later", run_at=clock.now + 1, unique=KEY)
        jobs = [make_job("a"), later, make_job("twin", unique=KEY)]
        assert store.enqueue(Q, jobs, max_length=1) == [Added.ADDED, Added.ADDED, Added.DUPLICATE]


class TestARunOfASchedule:
    @pytest.mark.accepts("G36", "G65")
    def test_is_added_once_whoever_sends_it(self, store, make_job, clock):
        assert enqueue(store, make_job("a", schedule_run=("nightly", clock.now))) == [Added.ADDED]
        assert enqueue(store, make_job("b", schedule_run=("nightly", clock.now))) == [Added.ALREADY_RUN]
        assert store.get(Q, "b") is None

    def test_at_an_earlier_time_has_passed(self, store, make_job, clock):
        enqueue(store, make_job("a", schedule_run=("nightly", clock.now)))
        assert enqueue(store, make_job("b", schedule_run=("nightly", clock.now - 60_000))) == [Added.ALREADY_RUN]

    def test_of_another_schedule_is_another(self, store, make_job, clock):
        enqueue(store, make_job("a", schedule_run=("one", clock.now)))
        assert enqueue(store, make_job("b", schedule_run=("two", clock.now))) == [Added.ADDED]
        assert store.last_runs([Q]) == {"one": (clock.now, Q), "two": (clock.now, Q)}

    def test_sent_again_gets_the_same_answer(self, store, make_job, clock):
        job = make_job("a", schedule_run=("nightly", clock.now))
        assert enqueue(store, job) == [Added.ADDED]
        assert enqueue(store, job) == [Added.ADDED]
