"""settle: many attempts end in one call, each in its own way, none of them with a success."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Attempt, Ended, Lane, State
from tests.contract.acts import (
    FAILED,
    LEASE,
    LOST,
    Q,
    claim,
    claim_alone,
    complete,
    counts,
    done,
    enqueue,
    ids_in,
    info,
    notes_of,
    start,
    state_of,
    totals,
)

VERBS = ("retry", "snooze", "park", "bury", "discard")
STATES = (State.RETRY, State.SCHEDULED, State.BLOCKED, State.DEAD, State.CANCELLED)


def ended(claimed, verb, **fields):
    line = {"attempt": FAILED} if verb in {"retry", "bury", "discard"} else {}
    return Ended(claimed, verb, **{"delay": 5000, "knows": "old", **line, **fields})


def settle(store, claims, *verbs):
    return store.settle(Q, [ended(claimed, verb) for claimed, verb in zip(claims, verbs, strict=True)])


@pytest.mark.accepts("K02")
def test_each_job_ends_in_its_own_way(store, make_job, clock):
    claims = start(store, *[make_job(id, name="n") for id in "abcde"])
    assert settle(store, claims, *VERBS) == list(STATES)
    assert [state_of(store, id) for id in "abcde"] == list(STATES)
    assert [info(store, id).at for id in "abde"] == [clock.now + 5000, clock.now + 5000, clock.now, clock.now]
    assert [info(store, id).failures for id in "abcde"] == [1, 0, 0, 1, 0]
    assert [len(info(store, id).attempts) for id in "abcde"] == [1, 0, 0, 1, 1]
    assert info(store, "c").parked_at == clock.now
    counted = totals(store)
    assert (counted["failed"], counted["failed:n"], counted["retried:n"], counted["dead:n"]) == (2, 2, 1, 1)
    assert (counted["retried"], counted["dead"], counted["cancelled"]) == (1, 1, 1)
    minute = store.sums([Q], clock.now - 60_000)[clock.now - clock.now % 60_000]
    assert (minute["failed"], minute["dead"]) == (2, 1)
    assert store.holdings(Q, "w") == []


def test_stale_claims_are_told_at_their_places_and_the_others_settled(store, make_job):
    claims = start(store, *[make_job(id) for id in "abcd"])
    store.kill(Q, ["b"], "by hand")
    stale = claims[2]._replace(token=claims[2].token + 9)
    assert settle(store, [claims[0], claims[1], stale, claims[3]], "bury", "retry", "discard", "snooze") == [
        State.DEAD, None, None, State.SCHEDULED,
    ]  # fmt: skip
    assert [state_of(store, id) for id in "abcd"] == [State.DEAD, State.DEAD, State.RUNNING, State.SCHEDULED]
    assert len(info(store, "b").attempts) == 1


def test_only_the_first_end_of_a_claim_counts_also_in_one_call_and_in_any_order(store, make_job):
    claims = start(store, *[make_job(id) for id in "abc"])
    assert [state is None for state in settle(store, [claims[0], claims[0]], "bury", "bury")].count(True) == 1
    assert settle(store, claims[1:], "retry", "bury") == [State.RETRY, State.DEAD]
    before = [info(store, id) for id in "abc"], totals(store)
    assert settle(store, claims[::-1], "snooze", "bury", "retry") == [None] * 3
    assert settle(store, claims[1:], "retry", "bury") == [None] * 2
    assert ([info(store, id) for id in "abc"], totals(store)) == before


def test_jobs_that_were_asked_to_stop_wait_no_more(store, make_job):
    claims = start(store, *[make_job(id) for id in "abcdef"])
    store.cancel(Q, ["a", "b", "c", "d", "e"])
    cancelled = State.CANCELLED
    answers = [cancelled, cancelled, cancelled, State.DEAD, cancelled, State.RETRY]
    assert settle(store, claims, *VERBS, "retry") == answers
    assert [state_of(store, id) for id in "abcdef"] == answers
    assert info(store, "a").failures == 1
    assert (totals(store)["retried"], totals(store)["cancelled"]) == (1, 4)
    assert store.extend(Q, ["w"], LEASE)["w"] in ([], ())


def test_the_slots_of_all_are_freed(store, make_job):
    limit = {"limit_key": "k", "limit": 3}
    enqueue(store, *[make_job(f"job-{n}", **limit) for n in range(9)])
    claims = claim(store, 9)
    assert len(claims) == 3
    settle(store, claims, "retry", "bury", "snooze")
    again = claim(store, 9)
    assert len(again) == 3
    assert not {each.id for each in again} & {each.id for each in claims}
    settle(store, again, "discard", "park", "bury")
    assert len(claim(store, 9)) == 3


def test_locks_are_freed_by_those_that_end_and_taken_again_by_those_that_wait(store, make_job):
    keys = {
        id: {"unique": id * 64, "unique_mode": mode} for id, mode in zip("abcd", ["queued", "running"] * 2, strict=True)
    }
    claims = start(store, *[make_job(id, **keys[id]) for id in "abcd"])
    settle(store, claims, "retry", "snooze", "bury", "discard")
    added = enqueue(store, *[make_job(f"{id}2", **keys[id]) for id in "abcd"])
    assert [str(each) for each in added] == ["duplicate", "duplicate", "added", "added"]


def test_parked_jobs_keep_their_order_before_all_others(store, make_job):
    claims = start(store, *[make_job(id) for id in "abc"])
    enqueue(store, make_job("later"))
    settle(store, claims, *["park"] * 3)
    assert [each.id for each in claim(store, 9, knows="new")] == ["a", "b", "c", "later"]


def test_a_parked_suspect_stays_one(store, make_job, clock):
    start(store, make_job("a"), make_job("b"))
    clock.advance(LEASE + 1)
    store.recover(Q)
    suspects = claim_alone(store, 9, lease_each=True)
    assert settle(store, suspects, "park", "park") == [State.BLOCKED] * 2
    assert all(each.suspect for each in claim_alone(store, 9, lease_each=True, knows="new"))


def test_an_attempt_that_snoozes_does_not_expire(store, make_job, clock):
    claims = start(store, *[make_job(id, expires_at=clock.now + 1000) for id in "ab"])
    settle(store, claims, "snooze", "retry")
    clock.advance(6000)
    assert len(claim(store, 9)) == 2


def test_the_failures_of_those_that_were_lost_are_not_counted(store, make_job):
    claims = start(store, make_job("a"), make_job("b"))
    store.settle(Q, [ended(claims[0], "bury", attempt=LOST), ended(claims[1], "bury")])
    assert [info(store, id).failures for id in "ab"] == [0, 1]
    assert (totals(store)["failed"], totals(store)["dead"]) == (1, 2)


def test_a_killed_attempt_that_ends_in_a_batch_frees_what_it_held(store, make_job):
    limit = {"limit_key": "k", "limit": 2}
    enqueue(store, *[make_job(id, **limit) for id in "abcd"])
    claims = claim(store, 4)
    store.kill(Q, ["a"], "by hand")
    assert claim(store, 4) == []
    assert settle(store, claims, "bury", "retry") == [None, State.RETRY]
    assert [each.id for each in claim(store, 4)] == ["c", "d"]


def test_leases_of_one_job_end_and_overdue_ones_only_if_they_were_not_extended(store, make_job, clock):
    enqueue(store, *[make_job(id) for id in "abc"])
    claims = claim(store, 3, worker="remote", lease_each=True)
    store.settle(Q, [ended(claims[0], "retry")])
    clock.advance(LEASE + 1)
    overdue = sorted(store.overdue(Q), key=lambda each: each.id)
    assert [each.id for each in overdue] == ["b", "c"]
    store.extend(Q, ["remote:b"], LEASE)
    assert settle(store, overdue, "retry", "retry") == [None, State.RETRY]


def test_the_report_that_ended_each_is_kept(store, make_job):
    claims = start(store, make_job("a"), make_job("b"), make_job("c"))
    reports = [claims[0]._replace(report="ab12"), claims[1], claims[2]._replace(report="cd34")]
    settle(store, reports, "retry", "retry", "bury")
    assert [store.reported([Q], id) for id in "abc"] == ["ab12", "", "cd34"]


def test_a_holder_has_only_the_claims_that_have_not_ended(store, make_job):
    claims = start(store, *[make_job() for _ in range(5)])
    settle(store, claims[:3], "retry", "park", "discard")
    ((token, left),) = store.renew([Q], ["w"], LEASE)[Q]["w"].holds.items()
    assert (token, left) == (claims[0].token, 2)
    assert complete(store, *claims[3:]) == []
    assert not store.renew([Q], ["w"], LEASE)[Q]["w"].holds


def test_the_ends_that_callers_wait_for_are_told(store, make_job):
    claims = start(store, *[make_job(id) for id in "abc"])
    after, _ = store.watch_ends(Q, ["a", "b"])
    settle(store, claims, "bury", "retry", "discard")
    over, _ = store.next_ends(Q, after, 5)
    assert over == ["a"]


def test_those_that_ended_go_to_the_archive_with_their_logs(make_store, make_job):
    store = make_store(archive=True)
    claims = start(store, *[make_job(id) for id in "abcd"])
    settle(store, claims, "bury", "retry", "discard", "snooze")
    archived = {job.id: job for _, job in store.archive_batch(Q)}
    assert {id: job.state for id, job in archived.items()} == {"a": State.DEAD, "c": State.CANCELLED}
    assert [len(archived[id].attempts) for id in "ac"] == [1, 1]
    assert archived["a"].failures == 1


def test_the_steps_of_workflows_are_noted(store, make_job):
    jobs = [make_job(f"w{n}.0", workflow=f"w{n}") for n in range(2)]
    claims = start(store, *jobs, make_job("w0.1", workflow="w0"), make_job("w1.1", workflow="w1"), make_job("x"))
    settle(store, claims, "bury", "discard", "bury", "retry", "bury")
    said = {(note.workflow, note.state, job) for note in notes_of(store, Q) for job, _ in note.jobs}
    assert said == {("w0", "dead", "w0.0"), ("w1", "cancelled", "w1.0"), ("w0", "dead", "w0.1")}


def test_failed_jobs_are_listed_by_their_errors_however_many_come_at_once(store, make_job, clock):
    """In the lists, the latest end comes first; the times of retries come in any order."""
    everything, delays = list[str](), {}
    for turn in range(6):
        ids = [f"job-{n * 7919 % 200:03}-{turn}" for n in range(200)]
        claims = start(store, *[make_job(id, name="n") for id in ids])
        errors = [
            Attempt(1, "failed", 0, 3, "w", "builtins.ValueError", "none left" if n % 10 < 2 else "no")
            for n in range(200)
        ]
        delays |= {id: 1000 + n * 104_729 % 50_000 for n, id in enumerate(ids)}
        verbs = ["retry" if n % 2 else "bury" for n in range(200)]
        ends = [
            Ended(claimed, verb, error, delays[claimed.id])
            for claimed, verb, error in zip(claims, verbs, errors, strict=True)
        ]
        assert None not in store.settle(Q, ends)
        everything += ids
        clock.advance(1)
    for state in (State.RETRY, State.DEAD):
        groups = store.failure_groups([Q], state)
        assert sorted(group.jobs for group in groups) == [120, 480]
        listed, _ = store.listed([Q], state, 2000, groups=groups)
        times = [each.at for each in listed]
        assert (len({each.id for each in listed}), times) == (600, sorted(times, reverse=times[0] > times[-1]))
    store.prune(Q)
    clock.advance(60_000)
    while claims := claim(store, 500):
        complete(store, *claims)
    assert counts(store) == {"dead": 600, "succeeded": 600}
    assert sum(group.jobs for group in store.failure_groups([Q], State.RETRY)) == 0
    assert len(store.delete(Q, ids_in(store, State.DEAD))) == 600
    assert sum(group.jobs for group in store.failure_groups([Q], State.DEAD)) == 0


def test_the_log_of_each_goes_on(store, make_job):
    enqueue(store, make_job("a"), make_job("b"))
    for n in range(27):
        claims = claim(store, 2)
        line = FAILED._replace(attempt=n, error=f"e{n}\n", traceback="x" * 100)
        assert store.settle(Q, [ended(each, "retry", attempt=line, delay=0) for each in claims]) == [State.RETRY] * 2
    for id in "ab":
        assert [each.attempt for each in info(store, id).attempts] == list(range(2, 27))


def test_an_empty_batch_is_nothing_and_a_thousand_are_the_most(store, make_job):
    assert store.settle(Q, []) == []
    claims = start(store, *[make_job() for _ in range(1000)])
    with pytest.raises(ValueError, match="1000"):
        store.settle(Q, [ended(claims[0], "retry")] * 1001)
    assert counts(store) == {"running": 1000}
    assert store.settle(Q, [ended(each, "retry") for each in claims]) == [State.RETRY] * 1000
    assert counts(store) == {"retry": 1000}


def test_jobs_without_a_readable_record_end_like_others(store, make_job):
    good = make_job("a")
    claims = start(store, good, make_job("b")._replace(record=b"\xff\x00 no record"), make_job("c"))
    assert settle(store, claims, "retry", "bury", "snooze") == [State.RETRY, State.DEAD, State.SCHEDULED]


def test_successes_in_the_same_queue_are_not_touched(store, make_job):
    claims = start(store, make_job("a"), make_job("b"))
    settle(store, claims[:1], "bury")
    assert store.complete(Q, [done(each) for each in claims]) == ["a"]
    assert claim(store, 1, lane=Lane.ALONE) == []
    assert counts(store) == {"dead": 1, "succeeded": 1}
