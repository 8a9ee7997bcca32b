"""What a child notes for its parent, and what the parent may take from it."""

from __future__ import annotations

from time import monotonic

import pytest

from django_jobs.core.values import Claim
from django_jobs.worker.batch_memory import Asked, LastBatch, StartedJob
from django_jobs.worker.child.queue_selector import LARGEST
from django_jobs.worker.shared_memory import SharedMemory, Thread


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
    shared.begin_claim(queue)
    shared.claim_succeeded(queue, got)
    numbered = thread.note_claims(queue, got)
    shared.end_claim()
    return numbered


def test_what_has_not_begun_is_revoked_and_never_begins(shared: SharedMemory) -> None:
    one, two = Thread(shared, 0), Thread(shared, 1)
    mine = fetch(shared, one, claims("a", 7, "x", "y", "z"))
    others = fetch(shared, two, claims("b", 9, "u"))
    assert one.begin_job(mine[0][0])

    shared.revoke()
    assert shared.not_begun() == (None, bare(mine[1][1], mine[2][1], others[0][1]))
    assert not one.begin_job(mine[1][0])
    assert not two.begin_job(others[0][0])

    one.note_handed_back(one.batch, [1, 2])
    again = fetch(shared, one, claims("a", 8, "y"))
    assert one.begin_job(again[0][0])
    assert shared.not_begun().claims == (), "what is claimed after it is not revoked"


def test_a_call_under_way_is_shown_with_what_was_known_before(shared: SharedMemory) -> None:
    thread = Thread(shared, 0)
    fetch(shared, thread, claims("b", 41, "x"))
    shared.begin_claim("b")
    assert shared.not_begun().asked is None, "not revoked"
    shared.revoke()
    asked = shared.not_begun().asked
    assert asked is not None
    assert asked == Asked(asked.number, "b", 41)
    shared.claim_succeeded("b", late := claims("b", 42, "y"))
    (numbered,) = thread.note_claims("b", late)
    shared.end_claim()
    assert shared.not_begun().asked is None
    assert not thread.begin_job(numbered[0])


def test_a_call_that_is_made_again_is_as_old_as_the_first(shared: SharedMemory) -> None:
    """Its answer is that of the first, whose claims were handed back meanwhile."""
    thread = Thread(shared, 0)
    shared.begin_claim("a")
    shared.claim_failed("a")
    shared.end_claim()
    shared.revoke()
    ((number, _),) = fetch(shared, thread, claims("a", 1, "x"))
    assert not thread.begin_job(number)
    ((number, _),) = fetch(shared, thread, claims("a", 2, "x"))
    assert thread.begin_job(number)


def test_it_says_since_when_something_waits(shared: SharedMemory) -> None:
    thread, before = Thread(shared, 1), monotonic() - 0.001
    assert shared.waits_since() is None
    ((number, _),) = fetch(shared, thread, claims("a", 1, "x"))
    assert before <= (shared.waits_since() or 0) <= monotonic()
    thread.begin_job(number)
    assert shared.waits_since() is None
    shared.begin_claim("a")
    assert shared.waits_since() is not None


def test_what_has_no_room_is_not_shown(shared: SharedMemory) -> None:
    thread = Thread(shared, 0)
    numbered = fetch(shared, thread, claims("a", 1, *(f"{n:0200}" for n in range(LARGEST))))
    shared.revoke()
    assert shared.not_begun().claims == ()
    assert not thread.begin_job(numbered[-1][0])


def test_the_longest_batch_of_the_longest_ids_has_room(shared: SharedMemory) -> None:
    fetch(shared, Thread(shared, 0), claims("a", 1, *(f"{n:0128}" for n in range(LARGEST))))
    shared.revoke()
    assert len(shared.not_begun().claims) == LARGEST


def test_a_time_limit_is_shown_until_the_function_has_returned(shared: SharedMemory) -> None:
    assert shared.deadline is None
    shared.may_run_until(deadline := monotonic() + 5)
    assert deadline <= (shared.deadline or 0) <= deadline + 0.002
    shared.may_run_until(None)
    assert shared.deadline is None


class TestABatchOfAnAloneChild:
    """The parent reads which job runs, and after the child's death what had ended and what had not begun."""

    @pytest.fixture
    def thread(self, shared: SharedMemory) -> Thread:
        thread = Thread(shared, 0)
        shared.begin_claim("a")
        thread.note_claims("a", claims("a", 7, "x", "y", "z"), left=5)
        shared.end_claim()
        return thread

    def test_keeps_its_running_job_when_the_others_are_handed_back(self, shared: SharedMemory, thread: Thread) -> None:
        thread.begin_job(0)
        thread.memory.runs(0, 1.0, None)
        assert shared.waits_to_begin("a", "z", 7)
        thread.note_handed_back(thread.batch, [1, 2])
        assert shared.last_batch() == LastBatch()
        assert not shared.waits_to_begin("a", "z", 7)
        assert shared.running() == StartedJob("a", "x", 7, 1.0, None, 5)

    def test_says_which_job_a_thread_runs(self, shared: SharedMemory, thread: Thread) -> None:
        assert shared.thread_of_job() is None
        thread.memory.runs(0, 1.0, None)
        first = shared.thread_of_job()
        thread.memory.runs(1, 1.0, None)
        assert first is not None
        assert shared.thread_of_job() != first
