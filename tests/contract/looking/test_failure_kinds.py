"""The store finds the groups of a job type or an error, and adds groups up: nobody reads all groups for that."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Attempt, State
from django_jobs.stores.values.lists import FailureKind
from tests.contract.acts import LEASE

QUEUES = ("a", "b", "c")
NAMES = ("shop.mail", "shop.*[a-z]?", "shop.über")
ERRORS = ("no", "no way", "a*b?[c]\\d", "日本")


@pytest.fixture
def failed(store, make_job, clock):
    """Jobs of each type and error in each queue, one more for each error; those of the last error are retried."""
    made = {}
    for queue in QUEUES:
        for name in NAMES:
            for n, error in enumerate(ERRORS):
                for i in range(n + 1):
                    store.enqueue(queue, [make_job(f"{name}-{n}-{i}", name=name)])
                    (claimed,) = store.claim(queue, "w", 1, lease=LEASE).claims
                    attempt = Attempt(1, "failed", 0, 12, "w", "ValueError", error)
                    if n == len(ERRORS) - 1:
                        store.retry(claimed, attempt, 60_000)
                    else:
                        store.bury(claimed, attempt)
                    clock.advance(1)
                    made.setdefault((queue, name, f"ValueError: {error}"), []).append(clock.now - 1)
    return made


def of_state(made, state):
    last = f"ValueError: {ERRORS[-1]}"
    return {key: times for key, times in made.items() if (key[2] == last) is (state is State.RETRY)}


@pytest.mark.parametrize("state", [State.DEAD, State.RETRY])
def test_the_kinds_of_failed_jobs_are_their_types_and_errors(store, failed, state):
    wanted = of_state(failed, state)
    for queues in (QUEUES, ["b"]):
        assert store.failure_kinds(queues)[state] == {FailureKind(*key[1:]) for key in wanted}
    for queues in (["empty"], []):
        assert store.failure_kinds(queues) == {State.DEAD: set(), State.RETRY: set()}


@pytest.mark.parametrize("state", [State.DEAD, State.RETRY])
def test_the_groups_of_a_kind_are_found_without_the_others(store, failed, state):
    kinds = sorted(store.failure_kinds(QUEUES)[state])
    everything = store.failure_groups(QUEUES, state)
    for chosen in ([], kinds[:1], kinds[1:3], kinds, [FailureKind("shop.mail", "unheard of")]):
        found = store.failure_groups(QUEUES, state, chosen)
        assert sorted(found) == sorted(each for each in everything if (each.name, each.signature) in chosen)
        for each in found:
            times = failed[each.queue, each.name, each.signature]
            assert (each.jobs, each.first, each.last) == (len(times), times[0], times[-1])
    with pytest.raises(ValueError):
        store.failure_groups(QUEUES, State.QUEUED, kinds)


@pytest.mark.parametrize("state", [State.DEAD, State.RETRY])
def test_sums_add_up_the_groups_of_all_queues(store, failed, state):
    wanted = {}
    for (_, name, error), times in of_state(failed, state).items():
        wanted.setdefault((name, error), []).append(times)
    for queues, number in ((QUEUES, 3), (("b", "empty"), 1), ((), 0)):
        sums = {(each.name, each.signature): each for each in store.failure_sums(queues, state)}
        assert sums.keys() == (wanted.keys() if number else set())
        for key, each in sums.items():
            times = wanted[key] if number == 3 else [wanted[key][1]]
            assert (each.groups, each.jobs) == (number, sum(map(len, times)))
            assert (each.first, each.last) == (min(map(min, times)), max(map(max, times)))
            listed, _ = store.listed([each.example.queue], state, 99, groups=[each.example])
            assert len(listed) == each.example.jobs == each.jobs // number
            assert {info.id.rpartition("-")[0] for info in listed} == {f"{key[0]}-{ERRORS.index(key[1][12:])}"}
    kinds = sorted(wanted)[:2]
    assert sorted(store.failure_sums(QUEUES, state, [FailureKind(*kind) for kind in kinds])) == sorted(
        each for each in store.failure_sums(QUEUES, state) if (each.name, each.signature) in kinds
    )
    assert store.failure_sums(QUEUES, state, []) == []
    with pytest.raises(ValueError):
        store.failure_sums(QUEUES, State.QUEUED)


def test_groups_whose_jobs_have_left_are_in_no_sum(store, failed):
    store.delete("a", [f"{name}-0-0" for name in NAMES])
    sums = {each.signature: each for each in store.failure_sums(QUEUES, State.DEAD) if each.name == "shop.mail"}
    assert (sums["ValueError: no"].groups, sums["ValueError: no"].jobs) == (2, 2)
    assert sums["ValueError: no"].example.queue != "a"
    assert all(each.signature != "ValueError: no" for each in store.failure_sums(["a"], State.DEAD))


def test_more_kinds_than_the_store_looks_for_are_found(store, failed):
    known = sorted(store.failure_kinds(QUEUES)[State.DEAD])
    many = [*known[::2], *(FailureKind("shop.mail", f"error {n}") for n in range(600))]
    assert sorted(store.failure_groups(QUEUES, State.DEAD, many)) == sorted(
        store.failure_groups(QUEUES, State.DEAD, known[::2])
    )
    assert sorted(store.failure_sums(QUEUES, State.DEAD, many)) == sorted(
        store.failure_sums(QUEUES, State.DEAD, known[::2])
    )
