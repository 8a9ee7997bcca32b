"""What a child notes for its parent, and what the parent may take from it."""

from __future__ import annotations

from time import monotonic

import pytest

from django_jobs.core.values import Claim
from django_jobs.worker.shared_memory import Asked, SharedMemory, Thread


def claims(queue: str, token: int, *ids: str) -> list[Claim]:
    return [Claim(id, queue, token, b"record", claimed_at=1_700_000_000_000) for id in ids]


def bare(*given: Claim) -> tuple[Claim, ...]:
    return tuple(claim._replace(record=b"") for claim in given)


@pytest.fixture
def shared() -> SharedMemory:
    return SharedMemory(["a", "b"], 2)


def fetch(shared: SharedMemory, thread: Thread, got: list[Claim]) -> list[tuple[int, Claim]]:
    """As a thread of the child does."""
    queue = got[0].queue
    shared.asks(queue)
    shared.was_answered(queue, got)
    numbered = thread.takes(queue, got)
    shared.asks_no_more()
    return numbered


def test_what_has_not_begun_is_revoked_and_never_begins(shared: SharedMemory) -> None:
    one, two = Thread(shared, 0), Thread(shared, 1)
    mine = fetch(shared, one, claims("a", 7, "x", "y", "z"))
    others = fetch(shared, two, claims("b", 9, "u"))
    assert one.begins(mine[0][0])

    shared.revoke()
    assert shared.not_begun() == (None, bare(mine[1][1], mine[2][1], others[0][1]))
    assert not one.begins(mine[1][0])
    assert not two.begins(others[0][0])

    one.gave_back(one.batch)
    again = fetch(shared, one, claims("a", 8, "y"))
    assert one.begins(again[0][0])
    assert shared.not_begun().claims == (), "what is claimed after it is not revoked"


def test_a_call_under_way_is_shown_with_what_was_known_before(shared: SharedMemory) -> None:
    thread = Thread(shared, 0)
    fetch(shared, thread, claims("b", 41, "x"))
    shared.asks("b")
    assert shared.not_begun().asked is None, "not revoked"
    shared.revoke()
    asked = shared.not_begun().asked
    assert asked is not None
    assert asked == Asked(asked.number, "b", 41)
    shared.was_answered("b", late := claims("b", 42, "y"))
    (numbered,) = thread.takes("b", late)
    shared.asks_no_more()
    assert shared.not_begun().asked is None
    assert not thread.begins(numbered[0])


def test_a_call_that_is_made_again_is_as_old_as_the_first(shared: SharedMemory) -> None:
    """Its answer is that of the first, whose claims were handed back meanwhile."""
    thread = Thread(shared, 0)
    shared.asks("a")
    shared.was_not_answered("a")
    shared.asks_no_more()
    shared.revoke()
    ((number, _),) = fetch(shared, thread, claims("a", 1, "x"))
    assert not thread.begins(number)
    ((number, _),) = fetch(shared, thread, claims("a", 2, "x"))
    assert thread.begins(number)


def test_it_says_since_when_something_waits(shared: SharedMemory) -> None:
    thread, before = Thread(shared, 1), monotonic() - 0.001
    assert shared.waits_since() is None
    ((number, _),) = fetch(shared, thread, claims("a", 1, "x"))
    assert before <= (shared.waits_since() or 0) <= monotonic()
    thread.begins(number)
    assert shared.waits_since() is None
    shared.asks("a")
    assert shared.waits_since() is not None


def test_what_has_no_room_is_not_shown(shared: SharedMemory) -> None:
    thread = Thread(shared, 0)
    numbered = fetch(shared, thread, claims("a", 1, *(f"{n:0200}" for n in range(250))))
    shared.revoke()
    assert shared.not_begun().claims == ()
    assert not thread.begins(numbered[-1][0])


def test_the_longest_batch_of_the_longest_ids_has_room(shared: SharedMemory) -> None:
    fetch(shared, Thread(shared, 0), claims("a", 1, *(f"{n:0128}" for n in range(250))))
    shared.revoke()
    assert len(shared.not_begun().claims) == 250


def test_a_time_limit_is_shown_until_the_function_has_returned(shared: SharedMemory) -> None:
    assert shared.deadline is None
    shared.may_run_until(deadline := monotonic() + 5)
    assert deadline <= (shared.deadline or 0) <= deadline + 0.002
    shared.may_run_until(None)
    assert shared.deadline is None
