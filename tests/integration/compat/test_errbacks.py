"""Error callbacks of tasks, chains, groups and chords: each comes once, however the task has ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import get_job
from django_jobs.compat.celery import AsyncResult, Reject, Unsupported, chain, chord, group, shared_task
from django_jobs.compat.celery.exceptions import ChordError
from django_jobs.exceptions import PayloadError, UnknownQueue
from django_jobs.testing import Jobs

QUEUES = {"STORE": "memory", "MAX_PAYLOAD": 4000, "QUEUES": {"default": {}, "mail": {}}}
TOLD: list[Any] = []


@shared_task(name="errbacks.works")
def works(*_: Any) -> int:
    return 7


@shared_task(name="errbacks.fails")
def fails(*_: Any) -> None:
    raise ValueError("no")


@shared_task(name="errbacks.rejects")
def rejects() -> None:
    raise Reject("not here")


@shared_task(name="errbacks.told")
def told(id: str) -> None:
    TOLD.append(id)


@shared_task(name="errbacks.told_more")
def told_more(id: str, text: str = "") -> None:
    TOLD.append((id, text))


@shared_task(name="errbacks.bound", bind=True)
def bound(self: Any, id: str, more: int = 0) -> None:
    TOLD.append((id, self.request.called_directly))


@shared_task(name="errbacks.with_error")
def with_error(request: Any, error: Exception, traceback: str, more: int = 0) -> None:
    TOLD.append((request.id, request.task, type(error).__name__, "no" in (traceback or ""), more))


@pytest.fixture(autouse=True)
def _own_settings() -> Iterator[None]:
    TOLD.clear()
    with override_settings(DJANGO_JOBS=QUEUES):
        yield


def run(jobs: Jobs) -> None:
    for _ in range(6):
        jobs.run_due()


@pytest.mark.parametrize(
    ("errback", "expected"),
    [
        (lambda: told.s(), lambda id: id),
        (lambda: told_more.s(text="x"), lambda id: (id, "x")),
        (lambda: told.si("other"), lambda id: "other"),
        (lambda: bound.s(), lambda id: (id, False)),
        (lambda: with_error.s(more=3), lambda id: (id, "errbacks.fails", "ValueError", True, 3)),
    ],
)
@pytest.mark.parametrize("eager", [False, True])
def test_an_errback_is_called_as_celery_calls_it(
    jobs: Jobs, errback: Callable[[], Any], expected: Callable[[str], Any], eager: bool
) -> None:
    with override_settings(CELERY_TASK_ALWAYS_EAGER=eager):
        result = fails.apply_async((1,), link_error=errback(), task_id=f"failed-{eager}")
        works.apply_async(link_error=errback())
    run(jobs)
    assert [expected(result.id)] == TOLD


def test_several_errbacks_and_a_link_go_together(jobs: Jobs) -> None:
    bad = fails.apply_async(link=told.si("never"), link_error=[told.s(), with_error.s()])
    works.apply_async(link=told.s(), link_error=[told.si("never"), with_error.s()])
    run(jobs)
    assert TOLD.count(7) == 1
    assert bad.id in TOLD
    assert len(TOLD) == 3


def test_each_death_is_told_and_each_once(jobs: Jobs) -> None:
    """The job that tells of a death may run again after a crash; a task that is retried by hand may die again."""
    result = fails.apply_async(link_error=told.s())
    with pytest.raises(ValueError, match="no"):
        jobs.run_twice(get_job(result.id))
    (waiting,) = jobs.enqueued(name="celery.errbacks")
    jobs.run_twice(get_job(waiting.id))
    run(jobs)
    assert [result.id] == TOLD
    jobs.store.revive("default", [result.id])
    run(jobs)
    assert [result.id, result.id] == TOLD


def test_a_task_that_is_rejected_or_revoked_has_not_failed(jobs: Jobs) -> None:
    rejects.apply_async(link_error=told.s())
    works.apply_async(link_error=told.s()).revoke()
    works.apply_async(link_error=told.s(), expires=1, countdown=5)
    run(jobs)
    assert TOLD == []


def test_the_error_of_a_chord_names_its_header(jobs: Jobs) -> None:
    made = chord([fails.si(1), fails.si(2), works.si()], works.s())
    made.link_error(with_error.s())
    result = made.apply_async()
    run(jobs)
    assert [(result.id, None, ChordError.__name__, False, 0)] == TOLD


def test_a_callback_of_the_header_is_no_task_of_it(jobs: Jobs) -> None:
    """It may fail, and the body runs all the same."""
    linked = works.si()
    linked.link(fails.s())
    result = chord([linked, works.si()])(works.s().on_error(told.s()))
    run(jobs)
    assert (result.state, TOLD) == ("SUCCESS", [])


def test_an_errback_of_a_chord_in_a_chain_is_told_of_each_part(jobs: Jobs) -> None:
    whole = chain(works.s(), chord([works.si(), works.si()], works.s()), fails.s(), works.s()).on_error(told.s())
    last = whole.apply_async()
    run(jobs)
    assert [last.parent.id] == TOLD


def test_an_errback_of_a_task_and_of_its_chain_is_called_once(jobs: Jobs) -> None:
    last = chain(works.s(), fails.s().on_error(told.s())).on_error(told.s()).apply_async()
    run(jobs)
    assert [last.id] == TOLD


def test_the_delay_of_a_step_counts_from_the_end_of_the_step_before(jobs: Jobs) -> None:
    last = chain(works.s().set(countdown=100), works.s().set(countdown=60)).apply_async()
    jobs.run_all()
    assert last.parent.state == "PENDING"
    jobs.travel(100)
    jobs.run_all()
    assert (last.parent.state, last.state) == ("SUCCESS", "PENDING")
    jobs.travel(59)
    jobs.run_all()
    assert last.state == "PENDING"
    jobs.travel(2)
    jobs.run_all()
    assert last.state == "SUCCESS"


@pytest.mark.parametrize(
    ("errback", "error", "text"),
    [
        (lambda: chain(told.s(), told.s()), Unsupported, "pass the signature of one task"),
        (lambda: object(), Unsupported, "another application"),
        (lambda: told.s().on_error(told.s()), Unsupported, "no link_error of its own"),
        (lambda: told.s().set(queue="nobodys"), UnknownQueue, "nobodys"),
        (lambda: told.si(), TypeError, "id"),
        (lambda: told_more.s(), TypeError, re.escape("(request, error, traceback)")),
        (lambda: told.s(1, 2), TypeError, "too many"),
        (lambda: told_more.s(text="x" * 3000), PayloadError, "half of MAX_PAYLOAD"),
    ],
)
@pytest.mark.parametrize("whole", [lambda: works.s(), lambda: works.s() | works.s()])
def test_what_cannot_be_an_errback_is_refused_at_the_call(
    jobs: Jobs, errback: Callable[[], Any], error: type[Exception], text: str, whole: Callable[[], Any]
) -> None:
    with pytest.raises(error, match=text):
        whole().on_error(errback()).apply_async()
    assert jobs.enqueued() == []


def test_a_callback_of_a_group_as_an_option_is_refused_with_what_to_write(jobs: Jobs) -> None:
    for option in ("link", "link_error"):
        with pytest.raises(Unsupported, match="each of its tasks"):
            group(works.s(), works.s()).apply_async(**{option: told.s()})
    assert AsyncResult("x").state == "PENDING"
