"""Lists over several queues, and the groups of jobs that failed: exact, whatever the number of queues and of jobs."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_jobs.core.signature import LENGTH, NO_ERROR, signature
from django_jobs.core.values import Attempt, State
from tests.contract.acts import FAILED, LEASE, Q, done

QUEUES = ("a", "b", "c", "d", "e", "f")


def failed(error="no", kind="ValueError"):
    return Attempt(1, "failed", 0, 12, "w", kind, error)


def all_of(store, state, queues=QUEUES, limit=7, between=lambda: None, **more):
    """Every id of a list, page by page."""
    found, mark = [], None
    while True:
        infos, mark = store.listed(queues, state, limit, mark, **more)
        found += [(info.queue, info.id) for info in infos]
        if mark is None:
            return found
        between()


@pytest.fixture
def die(store, make_job):
    """Let a job of this queue die."""

    def die(queue, id, attempt=FAILED, *, retry=0, **job):
        store.enqueue(queue, [make_job(id, **job)])
        (claimed,) = store.claim(queue, "w", 1, lease=LEASE).claims
        if retry:
            store.retry(claimed, attempt, retry)
        else:
            store.bury(claimed, attempt)

    return die


def groups_of(store, state=State.DEAD, queues=QUEUES):
    return {
        (group.queue, group.name, group.signature): group.jobs
        for group in store.failure_groups(queues, state)
        if group.jobs
    }


def test_dead_jobs_are_grouped_by_queue_type_and_error(store, die):
    die("a", "1", failed("order 7"))
    die("a", "2", failed("order 8"))
    die("a", "3", failed("order 8", "KeyError"))
    die("b", "4", failed("order 9"), name="other.job")
    die("b", "5", failed("later"), retry=1000)
    assert groups_of(store) == {
        ("a", "tests.job", "ValueError: order …"): 2,
        ("a", "tests.job", "KeyError: order …"): 1,
        ("b", "other.job", "ValueError: order …"): 1,
    }
    assert groups_of(store, State.RETRY) == {("b", "tests.job", "ValueError: later"): 1}
    with pytest.raises(ValueError):
        store.failure_groups(["a"], State.QUEUED)


def test_a_group_knows_its_first_and_last_failure(store, die, clock):
    began = clock.now
    for n in range(3):
        die("a", str(n))
        clock.advance(1000)
    (group,) = store.failure_groups(["a"], State.DEAD)
    assert (group.first, group.last) == (began, began + 2000)


def test_every_way_out_leaves_the_group(store, die, clock):
    for id in ("revived", "deleted", "stays"):
        die("a", id)
    for id in ("due", "cancelled", "killed", "moved"):
        die("a", f"r-{id}", failed("again"), retry=60_000)
    store.revive("a", ["revived"])
    store.delete("a", ["deleted"])
    store.cancel("a", ["r-cancelled"])
    store.kill("a", ["r-killed"], "by hand")
    store.reschedule("a", ["r-moved"], clock.now + 90_000)
    name = "tests.job"
    assert groups_of(store) == {("a", name, "ValueError: no"): 1, ("a", name, "killed: by hand"): 1}
    assert groups_of(store, State.RETRY) == {("a", name, "ValueError: again"): 2}
    clock.advance(60_000)
    store.promote("a")
    assert groups_of(store, State.RETRY) == {("a", name, "ValueError: again"): 1}
    (group,) = [group for group in store.failure_groups(["a"], State.RETRY) if group.jobs]
    assert all_of(store, State.RETRY, groups=[group]) == [("a", "r-moved")]


def test_those_that_are_too_many_leave_the_group(make_store, make_job, clock):
    store = make_store(dead=3)
    for n in range(5):
        store.enqueue(Q, [make_job(str(n))])
        (claimed,) = store.claim(Q, "w", 1, lease=LEASE).claims
        store.bury(claimed, FAILED)
        clock.advance(61_000)
    store.prune(Q)
    assert sum(group.jobs for group in store.failure_groups([Q], State.DEAD)) == 3


def test_a_job_without_an_attempt_has_a_group_too(store, make_job):
    """A server that has lost its last writes may know nothing of the attempt."""
    names = store.keys.of(Q)
    store.transport.command("HSET", names["jobs"], "x", make_job("x").record)
    store.transport.command("ZADD", names["dead"], 1, "x")
    store.reconcile(Q)
    assert groups_of(store, queues=[Q]) == {(Q, "tests.job", NO_ERROR): 1}


@pytest.mark.parametrize("reverse", [False, True])
def test_a_list_over_queues_has_each_job_once_in_the_order_of_time(store, die, clock, reverse):
    rng, made = random.Random(7), []
    for n in range(60):
        queue = rng.choice(QUEUES)
        die(queue, f"{n:02}")
        made.append((queue, f"{n:02}"))
        clock.advance(rng.choice([0, 0, 1, 5]))
    found = all_of(store, State.DEAD, reverse=reverse)
    assert sorted(found) == sorted(made)
    times = [store.get(*each).at for each in found]
    assert times == sorted(times, reverse=reverse)


@pytest.mark.parametrize("state", list(State))
def test_every_state_has_such_a_list(store, make_job, clock, state):
    made = []
    for n in range(24):
        queue, id = QUEUES[n % 6], f"{n:02}"
        controls = {"limit_key": "k", "limit": 1} if state is State.BLOCKED else {}
        controls |= {"keep_result": 60_000} if n % 2 and state is State.SUCCEEDED else {}
        controls |= {"expires_at": clock.now + 10} if state is State.EXPIRED else {}
        run_at = clock.now + 60_000 + n % 3 if state is State.SCHEDULED else 0
        store.enqueue(queue, [make_job(id, run_at=run_at, **controls)])
        made.append((queue, id))
    for queue in QUEUES if state in {State.DEAD, State.RETRY, State.RUNNING, State.SUCCEEDED, State.BLOCKED} else ():
        for claimed in store.claim(queue, "w", 10, lease=LEASE).claims:
            match state:
                case State.DEAD:
                    store.bury(claimed, FAILED)
                case State.RETRY:
                    store.retry(claimed, FAILED, 1000)
                case State.SUCCEEDED:
                    store.complete(queue, [done(claimed)])
            clock.advance(1)
    if state is State.CANCELLED:
        for queue, id in made:
            store.cancel(queue, [id])
    if state is State.EXPIRED:
        clock.advance(1000)
        for queue in QUEUES:
            store.claim(queue, "w", 10, lease=LEASE)
    if state is State.BLOCKED:
        made = [(queue, id) for queue, id in made if store.get(queue, id).state is State.BLOCKED]
        assert len(made) == 18
    found = all_of(store, state, limit=5)
    assert sorted(found) == sorted(made)
    assert all_of(store, state, limit=5, reverse=True) == found[::-1]
    assert all(store.get(*each).state is state for each in found)


def test_a_group_is_listed_alone_and_in_order(store, die, clock):
    for n in range(40):
        die(QUEUES[n % 3], f"{n:02}", failed("odd" if n % 2 else "even"))
        clock.advance(1)
    wanted = [group for group in store.failure_groups(QUEUES, State.DEAD) if group.signature == "ValueError: odd"]
    found = [id for _, id in all_of(store, State.DEAD, groups=wanted, reverse=True)]
    assert found == [f"{n:02}" for n in range(39, 0, -2)]
    assert [id for _, id in all_of(store, State.DEAD, groups=wanted)] == found[::-1]
    assert all_of(store, State.DEAD, groups=[]) == []


def test_a_list_goes_on_although_jobs_come_and_go(store, die, clock):
    for n in range(60):
        die(QUEUES[n % 6], f"{n:02}")
        clock.advance(1)
    gone, groups = [], store.failure_groups(QUEUES, State.DEAD)

    def between():
        number = 100 + len(gone)
        die("a", f"new-{number}")
        victim = f"{(len(gone) * 7) % 60:02}"
        gone.append(victim)
        for queue in QUEUES:
            store.delete(queue, [victim])
        clock.advance(1)

    for more in ({}, {"groups": groups}):
        found = [id for _, id in all_of(store, State.DEAD, limit=6, between=between, reverse=True, **more)]
        assert len(found) == len(set(found))
        assert {f"{n:02}" for n in range(60)} - set(gone) <= set(found)


def test_many_jobs_of_one_group_die_at_one_time_and_leave_in_any_order(store, make_job, clock):
    ids = [f"{n:04}-{'x' * (n % 60)}" for n in range(600)]
    random.Random(3).shuffle(ids)
    store.enqueue(Q, [make_job(id) for id in ids])
    for start in range(0, 600, 50):
        store.kill(Q, ids[start : start + 50], "by hand")
    (group,) = store.failure_groups([Q], State.DEAD)
    assert group.jobs == 600
    assert sorted(id for _, id in all_of(store, State.DEAD, [Q], 50, groups=[group])) == sorted(ids)
    random.Random(4).shuffle(ids)
    for start in range(0, 570, 30):
        store.delete(Q, ids[start : start + 30])
        left = sorted(ids[start + 30 :])
        groups = store.failure_groups([Q], State.DEAD)
        assert sum(group.jobs for group in groups) == len(left)
        assert sorted(id for _, id in all_of(store, State.DEAD, [Q], 90, groups=groups)) == left


# -- signatures ------------------------------------------------------------------

PIECES = st.sampled_from(
    ["'", '"', "order ", "7", "12.5", "0x7fab", "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "3f2504e04f8911d39a0c",
     "deadbeef", " ", "\t", "é", "日本", "😀", "a_b", "\n", "\\", "\x00", "\x7f", "…", "abcdef01" * 3, ".",
     "-", ":", "ffff"]
)  # fmt: skip
TEXTS = st.one_of(st.lists(PIECES, max_size=60).map("".join), st.text(max_size=300))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.tuples(TEXTS, st.sampled_from(["", "builtins.ValueError", "shop.Ünknown", " "])), max_size=8))
def test_every_store_computes_the_same_signature(store, make_job, texts):
    attempts = [Attempt(1, "failed", 0, 1, "w", kind, text.encode(errors="replace").decode()) for text, kind in texts]
    store.delete(Q, [info.id for info in store.page(Q, State.DEAD, 0, 1000)])
    for n, attempt in enumerate(attempts):
        store.enqueue(Q, [make_job(f"s{n}")])
        (claimed,) = store.claim(Q, "w", 1, lease=LEASE).claims
        store.bury(claimed, attempt)
    found = {group.signature for group in store.failure_groups([Q], State.DEAD) if group.jobs}
    assert found == {signature(attempt) for attempt in attempts}
    for each in found:
        assert 0 < len(each.encode()) <= LENGTH
        assert each.strip(" \t\n") == each


def test_a_long_error_costs_no_more_than_a_short_one(store, die):
    """Texts for which a pattern that looks in every place would take seconds."""
    for n, text in enumerate(["\n" + " " * 16_000 + "x", "a" * 16_000, "'" * 16_000, "0" * 16_000, "abcdef0-" * 2_000]):
        die("a", str(n), failed(text, "K" * 5_000))
    assert sum(groups_of(store).values()) == 5


def test_a_flood_of_different_errors_is_told_apart_by_their_classes(store, die):
    for n in range(520):
        word = "".join(chr(97 + n // 26**k % 26) for k in range(3))
        die("a", str(n), failed(f"word {word}", "KeyError" if n % 2 else "ValueError"))
    groups = [group for group in store.failure_groups(["a"], State.DEAD) if group.jobs]
    assert sum(group.jobs for group in groups) == 520
    assert len(all_of(store, State.DEAD, ["a"], 100, groups=groups)) == 520
    store.delete("a", [str(n) for n in range(520)])
    assert sum(group.jobs for group in store.failure_groups(["a"], State.DEAD)) == 0
