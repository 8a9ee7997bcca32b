"""Failed jobs by their tags: exact, whatever the way in and out, and honest where a queue has too many tags."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Attempt, State
from django_jobs.serialization.record import decode, encode
from django_jobs.stores.values.lists import OTHER_TAGS, Span
from tests.contract.acts import FAILED, LEASE, Q

FULL = 500


@pytest.fixture
def die(store, make_job):
    """Let a job of this queue die, or wait for a retry."""

    def die(queue, id, tags="", *, retry=0, error="no", **job):
        store.enqueue(queue, [make_job(id, tags=tags, **job)])
        (claimed,) = store.claim(queue, "w", 1, lease=LEASE).claims
        attempt = Attempt(1, "failed", 0, 12, "w", "ValueError", error)
        return store.retry(claimed, attempt, retry) if retry else store.bury(claimed, attempt)

    return die


def counts(store, state=State.DEAD, queues=("a", "b"), tag=""):
    return {(group.queue, group.tag): group.jobs for group in store.failure_tags(queues, state, tag) if group.jobs}


def listed(store, tag, state=State.DEAD, queues=("a", "b"), limit=100, **more):
    groups = [group for group in store.failure_tags(queues, state, tag) if group.tag == tag]
    infos, mark = store.listed(queues, state, limit, groups=groups, **more)
    assert mark is None
    return [info.id for info in infos]


def test_failed_jobs_are_counted_by_queue_and_tag(store, die):
    die("a", "1", "billing customer:1")
    die("a", "2", "billing customer:2")
    die("b", "3", "billing")
    die("b", "4")
    die("b", "5", "billing", retry=1000)
    assert counts(store) == {("a", "billing"): 2, ("a", "customer:1"): 1, ("a", "customer:2"): 1, ("b", "billing"): 1}
    assert counts(store, State.RETRY) == {("b", "billing"): 1}
    assert counts(store, tag="billing") == {("a", "billing"): 2, ("b", "billing"): 1}
    assert counts(store, tag="customer:1") == {("a", "customer:1"): 1}
    assert counts(store, tag="customer:") == counts(store, tag="custome") == {}
    with pytest.raises(ValueError):
        store.failure_tags(["a"], State.QUEUED)


def test_the_groups_of_each_tag_are_added_up_over_the_queues(store, die, clock):
    for n, (queue, tags) in enumerate([("a", "x y"), ("b", "x"), ("b", "x"), ("c", "z"), ("a", "y"), ("a", "")]):
        clock.advance(1000)
        die(queue, str(n), tags)
    die("a", "6", "x", retry=10**6)
    store.delete("c", ["3"])
    sums = {each.name: each for each in store.tag_sums(("a", "b", "c"), State.DEAD)}
    assert {tag: (each.groups, each.jobs) for tag, each in sums.items()} == {"x": (2, 3), "y": (1, 2)}
    assert [each.jobs for each in store.tag_sums(("a", "b"), State.RETRY)] == [1]
    groups = [group for group in store.failure_tags(("a", "b"), State.DEAD) if group.tag == "x"]
    assert (sums["x"].first, sums["x"].last) == (min(each.first for each in groups), max(each.last for each in groups))
    assert sums["x"].example.queue == "a"
    with pytest.raises(ValueError):
        store.tag_sums(["a"], State.QUEUED)


def test_the_jobs_of_a_tag_are_listed_in_the_order_of_time(store, die, clock):
    for n in range(12):
        die("ab"[n % 2], f"{n:02}", "even all" if n % 2 == 0 else "all")
        clock.advance(1000)
    assert listed(store, "even", reverse=True) == ["10", "08", "06", "04", "02", "00"]
    assert listed(store, "all") == [f"{n:02}" for n in range(12)]
    groups = store.failure_tags(("a", "b"), State.DEAD, "all")
    first, mark = store.listed(("a", "b"), State.DEAD, 5, groups=groups)
    rest, _ = store.listed(("a", "b"), State.DEAD, 50, mark, groups=groups)
    assert [info.id for info in [*first, *rest]] == [f"{n:02}" for n in range(12)]
    since = store.get("a", "04").at
    assert store.count_within(("a", "b"), State.DEAD, Span(since, since + 4000), groups) == 4
    assert listed(store, "even", span=Span(since, since + 4000)) == ["04", "06"]


def test_every_way_out_leaves_the_groups(store, die, clock):
    for n in range(4):
        die("a", f"d{n}", "x y")
        die("a", f"r{n}", "x y", retry=10_000)
    store.delete("a", ["d0", "r0"])
    store.revive("a", ["d1", "r1"])
    store.kill("a", ["r2"], "a test")
    clock.advance(10_000)
    store.claim("a", "w", 100, lease=LEASE)
    assert counts(store) == {("a", "x"): 3, ("a", "y"): 3}
    assert sorted(listed(store, "x")) == sorted(listed(store, "y")) == ["d2", "d3", "r2"]
    assert counts(store, State.RETRY) == {}


def test_a_job_that_is_put_off_keeps_its_place(store, die, clock):
    die("a", "1", "x", retry=1000)
    store.reschedule("a", ["1"], clock.now + 500_000)
    assert listed(store, "x", State.RETRY) == ["1"]
    assert counts(store, State.RETRY) == {("a", "x"): 1}


def test_a_waiting_retry_that_gets_other_tags_changes_its_groups(store, die):
    die("a", "1", "x y", retry=1000)
    was = store.get("a", "1").record
    job = decode("1", "a", was)
    options = type(job.options)(max_attempts=job.options.max_attempts, tags="y z")
    store.edit("a", "1", encode(job._replace(options=options)), was=was)
    assert counts(store, State.RETRY) == {("a", "y"): 1, ("a", "z"): 1}


def test_those_that_are_trimmed_leave_the_groups(make_store, make_job, clock):
    store = make_store(dead=2)
    for n in range(5):
        store.enqueue(Q, [make_job(f"j{n}", tags="x")])
        store.bury(store.claim(Q, "w", 1, lease=LEASE).claims[0], FAILED)
        clock.advance(61_000)
    store.prune(Q)
    assert counts(store, queues=[Q]) == {(Q, "x"): 2}
    assert listed(store, "x", queues=[Q]) == ["j3", "j4"]


@pytest.mark.parametrize(
    "text", ["a  b", "a\tb", "ä", 'a"b', "a\\b", "x" * 65, " ".join(f"t{n}" for n in range(20)), "a a"]
)
def test_every_store_reads_the_same_tags_in_foreign_records(store, die, text):
    die("a", "1", text)
    wanted = decode("1", "a", store.get("a", "1").record).tags
    assert counts(store) == {("a", tag): 1 for tag in wanted}
    assert len(wanted) <= 8
    store.delete("a", ["1"])
    assert counts(store) == {}


def test_a_repeated_word_counts_a_job_once(store, die):
    die("a", "1", "a a b a")
    assert counts(store) == {("a", "a"): 1, ("a", "b"): 1}


def test_many_that_die_in_one_call_are_counted(store, make_job):
    store.enqueue("a", [make_job(f"{n:03}", tags=f"all t{n % 7}") for n in range(200)])
    claims = store.claim("a", "w", 200, lease=LEASE).claims
    store.kill("a", [claimed.id for claimed in claims], "a test")
    for claimed in claims:
        store.bury(claimed, FAILED)
    found = counts(store)
    assert found["a", "all"] == 200
    assert {found["a", f"t{n}"] for n in range(7)} == {28, 29}
    assert listed(store, "t3", limit=300) == [f"{n:03}" for n in range(3, 200, 7)]


def test_a_queue_with_too_many_tags_says_so_and_counts_no_tag_wrong(store, die):
    for n in range(FULL + 20):
        die("a", f"{n:03}", f"t{n:03} all")
    found = counts(store)
    assert found["a", "all"] == FULL + 20
    others = found.pop(("a", OTHER_TAGS), 0)
    assert all(jobs == 1 for (_, tag), jobs in found.items() if tag != "all")
    assert len(found) - 1 + others == FULL + 20
    # A tag without a group: its jobs are in that of the others.  A tag with a group goes on to be exact.
    last = store.failure_tags(["a"], State.DEAD, f"t{FULL + 19}")
    infos, _ = store.listed(["a"], State.DEAD, 1000, groups=last)
    assert f"{FULL + 19}" in [info.id for info in infos]
    die("a", "one more", "t000")
    assert listed(store, "t000", queues=("a",)) == ["000", "one more"]


def test_a_tag_of_a_job_without_a_group_gets_none_because_there_is_room(store, die):
    """Its group would have the new job and not the old one: a wrong number."""
    for n in range(FULL + 5):
        die("a", f"{n:03}", f"t{n:03}")
    last = f"t{FULL + 4}"
    store.delete("a", ["000", "001"])
    die("a", "another", last)
    found = store.failure_tags(["a"], State.DEAD, last)
    infos, _ = store.listed(["a"], State.DEAD, 1000, groups=found)
    assert {f"{FULL + 4}", "another"} <= {info.id for info in infos}
    assert [group.jobs for group in found if group.tag == last] in ([], [2])


def test_a_tag_gets_a_group_again_when_there_is_room(store, die):
    for n in range(FULL + 5):
        die("a", f"{n:03}", f"t{n:03}")
    store.delete("a", [f"{n:03}" for n in range(FULL + 5)])
    assert counts(store) == {}
    die("a", "again", f"t{FULL + 4}")
    assert counts(store) == {("a", f"t{FULL + 4}"): 1}
