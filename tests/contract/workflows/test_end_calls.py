"""`on_end` and `on_dead`: one job for each end of a job, whatever ends it, across crashes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import override_settings

from django_jobs import Discard, Fail, InvalidArguments, InvalidJob, Retry, UnknownJob, current_job, job
from django_jobs.core import registry
from django_jobs.enqueueing.submit import submit
from django_jobs.execution.executor import Executor
from django_jobs.execution.settle import settle
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.workflows import end_calls
from tests.contract.workflows.steps import LEASE, claims, store

__all__ = ["store"]

Q = "default"
#: what each job that was enqueued for an end was told, and its own id.
TOLD: list[dict[str, Any]] = []
IDS: list[str] = []
DEATHS: list[str] = []
AWAY: list[Exception] = []


@job(name="tests.ends.tell")
def tell(told: dict[str, Any]) -> None:
    TOLD.append(told)
    IDS.append(current_job().id)


@job(name="tests.ends.mourn")
def mourn(told: dict[str, Any]) -> None:
    DEATHS.append(told["id"])


@job(name="tests.ends.work", on_end=tell, on_dead="tests.ends.mourn", max_attempts=1, sensitive=["pin"])
def work(order: Any, pin: str = "") -> Any:
    if isinstance(order, int) and order < 0:
        raise {-1: Fail, -2: Discard, -3: Retry}[order](f"no {pin or order}")
    return {"order": order}


@job(name="tests.ends.once", on_end=tell, on_dead=mourn, delivery="at_most_once")
def once(order: int) -> None: ...


@job(name="tests.ends.deaf")
def deaf() -> None: ...


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    TOLD.clear()
    IDS.clear()
    DEATHS.clear()


def run(store: Store) -> None:
    """Run jobs, and do what maintenance does, until nothing is left."""
    while True:
        found = list(claims(store))
        for claim in found:
            Executor(close_connections=False).run(claim, store)
        if not found and not sum(end_calls.follow(store, queue) for queue in store.unread(store.queues())):
            return


def end_only(store: Store) -> None:
    """Run what waits, as a process does that dies before it has done what follows."""
    for claim in claims(store):
        settle(store, Executor(close_connections=False).attempt(claim, store))


def succeeds(store: Store, id: str, clock: Any) -> str:
    run(store)
    return "succeeded"


def is_cancelled(store: Store, id: str, clock: Any) -> str:
    store.cancel(Q, [id])
    return "cancelled"


def is_killed(store: Store, id: str, clock: Any) -> str:
    store.kill(Q, [id], "no need")
    return "dead"


def is_deleted(store: Store, id: str, clock: Any) -> str:
    store.delete(Q, [id])
    return "deleted"


def expires(store: Store, id: str, clock: Any) -> str:
    clock.advance(3_600_001)
    store.expire(Q)
    return "expired"


def loses_its_worker(store: Store, id: str, clock: Any) -> str:
    assert [claim.id for claim in claims(store)] == [id]
    clock.advance(LEASE + 1)
    assert [lost.id for lost in store.recover(Q)] == [id]
    return "dead"


ENDS = [succeeds, is_cancelled, is_killed, is_deleted, expires, loses_its_worker]


@pytest.mark.parametrize("end", ENDS)
def test_every_end_is_followed_by_one_job(store: Store, clock: Any, end: Callable[..., str]) -> None:
    expires_at = datetime.fromtimestamp(clock() / 1000, UTC) + timedelta(hours=1)
    kind = once if end is loses_its_worker else work
    handle = kind.using(expires_at=expires_at if end is expires else None).enqueue(7)
    state = end(store, handle.id, clock)
    run(store)
    assert [(told["id"], told["state"]) for told in TOLD] == [(handle.id, state)]
    assert [handle.id] * (state == "dead") == DEATHS
    run(store)
    assert (len(TOLD), store.unread([Q])) == (1, [])


def test_it_is_told_what_is_known_of_the_end(store: Store, clock: Any) -> None:
    handle = work.using(meta={"tenant": "a", "sent": "1111-2222"}).enqueue(7, pin="1111-2222")
    run(store)
    (told,) = TOLD
    assert told.pop("ended_at") - told.pop("started_at") < timedelta(minutes=1)
    assert told == {
        "id": handle.id,
        "name": "tests.ends.work",
        "queue": "default",
        "state": "succeeded",
        "args": [7],
        "kwargs": {"pin": "••••"},
        "result": {"order": 7},
        "error": None,
        "attempts": 1,
        "meta": {"tenant": "a", "sent": "••••"},
    }


@pytest.mark.parametrize(
    ("order", "state", "error"),
    [
        (-1, "dead", "django_jobs.exceptions.Fail: no ••••"),
        (-2, "cancelled", "django_jobs.exceptions.Discard: no ••••"),
        (-3, "dead", "django_jobs.exceptions.Retry: no ••••"),
    ],
)
def test_it_is_told_the_error_without_sensitive_values(store: Store, order: int, state: str, error: str) -> None:
    work.enqueue(order, pin="1111-2222")
    run(store)
    assert [(told["state"], told["error"], told["result"], told["attempts"]) for told in TOLD] == [
        (state, error, None, 1)
    ]


def test_a_job_that_is_retried_by_hand_ends_again(store: Store) -> None:
    handle = work.enqueue(-1)
    run(store)
    for _ in range(2):
        store.revive(Q, [handle.id])
        run(store)
    assert [told["attempts"] for told in TOLD] == [1, 2, 3]
    assert len(set(IDS)) == 3
    assert [handle.id] * 3 == DEATHS


def test_a_job_that_ended_and_is_deleted_has_ended_once(store: Store) -> None:
    handle = work.enqueue(7)
    run(store)
    store.delete(Q, [handle.id])
    run(store)
    assert len(TOLD) == 1


def test_many_processes_that_follow_the_same_end_enqueue_one_job(store: Store, clock: Any) -> None:
    work.enqueue(7)
    end_only(store)
    ends, _ = store.end_calls(Q)
    for _ in range(3):  # each has read the end before another one has removed it
        end_calls._enqueue(Q, ends, end_calls._Look())
    run(store)
    assert len(TOLD) == 1
    end_calls._enqueue(Q, ends, end_calls._Look())
    run(store)
    assert len(TOLD) == 1, "the id is remembered"


def test_what_is_told_stays_if_the_job_leaves_the_history_first(store: Store, clock: Any) -> None:
    handle = work.enqueue(7)
    end_only(store)
    clock.advance(30 * 86_400_000)
    store.prune(Q)
    assert store.get(Q, handle.id) is None
    run(store)
    assert [(told["id"], told["result"]) for told in TOLD] == [(handle.id, {"order": 7})]


def test_an_end_waits_for_a_process_that_knows_the_job(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    work.enqueue(7)
    registry.unregister("tests.ends.tell")
    try:
        run(store)
        assert (TOLD, store.unread([Q])) == ([], [Q])
        assert "waits for a process that knows 'tests.ends.tell'" in caplog.text
    finally:
        registry.register(tell)
    run(store)
    assert len(TOLD) == 1


def test_an_end_waits_for_room_in_the_queue(store: Store, settings: Any) -> None:
    with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "QUEUES": {"default": {"MAX_LENGTH": 1}}}):
        use_store(store)
        work.enqueue(7)
        end_only(store)
        while work.using(on_end=None, on_dead=None).try_enqueue(8):
            pass
        assert end_calls.follow(store, Q) == 0
        run(store)
    assert len(TOLD) == 1


def needs_a_server(get_next: Any) -> Any:
    """Enqueue middleware, as one that reads the tenant of each job from a database."""

    def middleware(new_job: Any) -> Any:
        if AWAY:
            raise AWAY[0]
        return get_next(new_job)

    return middleware


@pytest.mark.parametrize("away", [OperationalError("no route to the database"), ConnectionRefusedError(111)])
def test_an_end_waits_for_what_enqueue_middleware_needs(store: Store, settings: Any, away: Exception) -> None:
    work.enqueue(7)
    with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "ENQUEUE_MIDDLEWARE": [f"{__name__}.needs_a_server"]}):
        use_store(store)
        AWAY.append(away)
        run(store)
        AWAY.clear()
        assert (TOLD, store.unread([Q])) == ([], [Q])
        run(store)
    assert len(TOLD) == 1


def test_one_job_named_for_both_is_told_once(store: Store) -> None:
    work.using(on_end=mourn, on_dead=mourn).enqueue(-1)
    run(store)
    assert len(DEATHS) == 1


def test_a_call_may_have_its_own_or_none(store: Store) -> None:
    work.using(on_end=mourn, on_dead=None).enqueue(-1)
    run(store)
    assert (TOLD, len(DEATHS)) == ([], 1)
    work.using(on_end=None).enqueue(7)
    run(store)
    assert (TOLD, store.unread([Q])) == ([], [])


def test_what_is_too_long_to_be_told_is_left_out(store: Store) -> None:
    work.enqueue("x" * 200_000)
    run(store)
    assert [(told["state"], told["result"], len(told["args"][0])) for told in TOLD] == [("succeeded", None, 200_000)]


def test_it_has_the_scope_of_the_job(store: Store) -> None:

    request = work._request((7,), {})
    request.scope = "south"
    submit(request)
    for claim in claims(store):
        Executor(close_connections=False).run(claim, store)
    (following,) = claims(store)
    assert b'"scope":"south"' in following.record


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"on_end": "tests.ends.tel"}, UnknownJob, "Did you mean 'tests.ends.tell'?"),
        ({"on_dead": "tests.ends.work"}, InvalidJob, "name the job itself"),
        ({"on_end": "tests.ends.deaf"}, InvalidArguments, "too many positional arguments"),
        ({"on_end": 7}, InvalidJob, "on_end=7: use text"),
    ],
)
def test_a_job_that_could_not_be_enqueued_then_is_refused_now(
    store: Store, options: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as caught:
        work.using(**options).enqueue(7)
    assert said in str(caught.value)
    assert list(claims(store)) == []


def test_in_tests_that_run_jobs_at_once_it_runs_at_once(store: Store, settings: Any) -> None:
    with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "EAGER": True}):
        handle = work.enqueue(7)
    assert [(told["id"], told["state"]) for told in TOLD] == [(handle.id, "succeeded")]
