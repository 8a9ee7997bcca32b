"""A schedule keeps its identity when its job, its queue or its expression changes, and when it goes and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from django_jobs import Retry, StoreUnavailable, schedules
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import Lane, State
from django_jobs.execution.executor import Executor
from django_jobs.execution.settle import settle
from django_jobs.models import Schedule
from django_jobs.schedules.scheduler import Periodic
from django_jobs.schedules.state import read_state
from django_jobs.stores.redis import Store
from django_jobs.workflows import end_calls
from tests.integration.schedulers import START, at, enqueued, known_job, ms, settled, tick_job, use

__all__ = ["at", "enqueued", "known_job", "use"]

pytestmark = pytest.mark.django_db

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
#: 10:00 of the next day, when "0 10 * * *" is due.
NEXT = START.replace(second=0) + DAY


@contextmanager
def release(*, queue: str = "default", **crons: str) -> Iterator[None]:
    """A release of the project: the queue of the type, and SCHEDULES."""
    registry.unregister("tests.tick")
    registry.register(JobDefinition(tick_job, name="tests.tick", queue=queue))
    entries = {key: {"job": "tests.tick", "cron": cron} for key, cron in crons.items()}
    with settled({"QUEUES": {"default": {}, "mail": {}}, "SCHEDULES": entries}):
        yield


def moves_to_mail() -> None:
    raise Retry(queue="mail")


def run(moment: Any) -> str:
    return f"cron:settings:report:{ms(moment)}"


DAILY = {"report": "0 10 * * *"}


class TestAnotherQueue:
    def test_a_run_whose_answer_was_lost_is_not_made_again_there(self, store, use, at, enqueued, monkeypatch):
        use(store)
        with release(**DAILY):
            periodic = Periodic(lambda: 0.0)
            periodic.tick()
            at(NEXT)
            with monkeypatch.context() as lost:
                lose_answers(lost, store)
                with pytest.raises(StoreUnavailable):
                    periodic.tick()
        with release(queue="mail", **DAILY):
            for minutes in range(3):
                at(NEXT + minutes * MINUTE)
                Periodic(lambda: 0.0).tick()
            last = schedules.last_run(schedules.get_entry("report"))
        assert store.get("default", run(NEXT)) is not None
        assert store.get("mail", run(NEXT)) is None
        assert last == NEXT

    def test_the_last_run_is_not_made_again_there_however_long_ago_it_was(self, store, use, at, enqueued):
        use(store)
        weekly = {"report": "0 10 * * sat"}
        saturday = START.replace(second=0) + DAY
        with release(**weekly):
            periodic = Periodic(lambda: 0.0)
            periodic.tick()
            at(saturday)
            periodic.tick()
            store.delete("default", [run(saturday)])
        with release(queue="mail", **weekly):
            at(saturday + 5 * DAY)
            store.prune("default")
            Periodic(lambda: 0.0).tick()
        assert enqueued == [run(saturday)]

    def test_a_run_still_waits_for_the_job_of_the_last_one(self, store, use, at, enqueued):
        use(store)
        registry.unregister("tests.tick")
        for number, queue in enumerate(["default", "mail"]):
            registry.register(JobDefinition(tick_job, name="tests.tick", queue=queue))
            entry = {"job": "tests.tick", "cron": "* * * * *", "overlap": "skip"}
            with settled({"QUEUES": {"default": {}, "mail": {}}, "SCHEDULES": {"report": entry}}):
                periodic = Periodic(lambda: 0.0)
                periodic.tick()
                at(START + (number + 1) * MINUTE)
                periodic.tick()
            registry.unregister("tests.tick")
        assert len(enqueued) == 1

    def test_a_run_waits_for_a_job_that_a_retry_has_moved_however_long_ago(self, store, use, at):
        """The other queue is paused, and the first one has forgotten the job."""
        use(store)
        registry.unregister("tests.tick")
        registry.register(JobDefinition(moves_to_mail, name="tests.tick"))
        entry = {"job": "tests.tick", "cron": "0 10 * * *", "overlap": "skip"}
        with settled({"QUEUES": {"default": {}, "mail": {}}, "SCHEDULES": {"report": entry}}):
            periodic = Periodic(lambda: 0.0)
            periodic.tick()
            for day in range(6):
                at(NEXT + day * DAY)
                periodic.tick()
                for claim in store.claim("default", "w", 9, lane=Lane.SHARED, lease=60_000).claims:
                    Executor(close_connections=False).run(claim, store)
                store.prune("default")
                store.forget_identities()
        assert [info.id for info in store.page("mail", State.RETRY)] == [run(NEXT)]
        assert store.stats(["default"])[0].counts["queued"] == 0

    def test_a_run_waits_for_a_job_that_is_between_two_queues_after_the_time_for_its_beginning(self, store, use, at):
        """It has begun, so that it does not expire any more."""
        use(store)
        registry.unregister("tests.tick")
        registry.register(JobDefinition(moves_to_mail, name="tests.tick"))
        entry = {"job": "tests.tick", "cron": "0 10 * * *", "overlap": "skip", "expires_in": 90}
        with settled({"QUEUES": {"default": {}, "mail": {}}, "SCHEDULES": {"report": entry}}):
            periodic = Periodic(lambda: 0.0)
            periodic.tick()
            at(NEXT)
            periodic.tick()
            (claim,) = store.claim("default", "w", 9, lane=Lane.SHARED, lease=60_000).claims
            settle(store, Executor(close_connections=False).attempt(claim, store))
            at(NEXT + DAY)
            periodic.tick()
            end_calls.follow(store, "default")
        assert [info.id for info in store.page("mail", State.RETRY)] == [run(NEXT)]
        assert store.stats(["default"])[0].counts["queued"] == 0

    def test_a_row_that_gets_another_job_runs_no_time_again(self, store, use, at, enqueued):
        use(store)
        registry.register(JobDefinition(tick_job, name="tests.tock", queue="mail"))
        with release():
            row = Schedule.objects.create(name="row", job="tests.tick", cron="* * * * *")
            periodic = Periodic(lambda: 0.0)
            periodic.tick()
            at(START + MINUTE)
            periodic.tick()
            row.job = "tests.tock"
            row.save()
            Periodic(lambda: 0.0).tick()
            assert len(enqueued) == 1
            at(START + 2 * MINUTE)
            Periodic(lambda: 0.0).tick()
        registry.unregister("tests.tock")
        assert len(enqueued) == len(set(enqueued)) == 2


def lose_answers(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    enqueue = store.enqueue

    def lose(*args: Any, **options: Any) -> Any:
        enqueue(*args, **options)
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(store, "enqueue", lose)


class TestGoneAndBack:
    @pytest.mark.parametrize("between", [{}, {"report": "0 12 * * *"}], ids=["removed", "changed"])
    def test_times_that_passed_meanwhile_are_not_made_up_for(self, store, use, at, enqueued, between):
        use(store)
        with release(**DAILY):
            Periodic(lambda: 0.0).tick()
        with release(**between):
            for hours in (1, 23, 25):  # 25: ten o'clock has passed
                at(START + timedelta(hours=hours))
                Periodic(lambda: 0.0).tick()
        made = list(enqueued)
        with release(**DAILY):
            at(NEXT + timedelta(hours=1, minutes=30))
            periodic = Periodic(lambda: 0.0)
            periodic.tick()
            assert enqueued == made
            at(NEXT + DAY)
            periodic.tick()
        assert enqueued == [*made, run(NEXT + DAY)]

    def test_of_one_that_is_gone_for_long_nothing_is_kept(self, store, use, at, enqueued):
        use(store)
        minutely = {"report": "* * * * *", "other": "0 10 * * *"}
        with release(**minutely):
            Periodic(lambda: 0.0).tick()
            at(START + MINUTE)
            Periodic(lambda: 0.0).tick()
            schedules.pause(schedules.get_entry("report"))
        with release(**DAILY):  # the same schedule in another form
            Periodic(lambda: 0.0).tick()
        for days, is_known in ((0, True), (29, True), (31, False)):
            with release(other="0 10 * * *"):
                at(START + 2 * MINUTE + days * DAY)
                Periodic(lambda: 0.0).tick()
            known = [fact for fact in read_state(store).facts if "settings:report" in fact]
            assert bool(known) is bool(store.last_runs(["default"]).get("settings:report")) is is_known, known
        made = list(enqueued)
        with release(**minutely):
            periodic = Periodic(lambda: 0.0)
            periodic.tick()
            assert enqueued == made
            at(START + 3 * MINUTE + 31 * DAY)
            periodic.tick()
        assert enqueued == [*made, run(START.replace(second=0) + 3 * MINUTE + 31 * DAY)]

    @pytest.mark.parametrize("act", ["changed", "deleted"])
    def test_rows_that_workers_have_seen_change(self, store, use, at, enqueued, act):
        use(store)
        with release():
            row = Schedule.objects.create(name="row", job="tests.tick", cron="* * * * *")
            seconds = iter(range(0, 1000, 10))
            workers = [Periodic(lambda: next(seconds)) for _ in range(2)]
            tick(workers)
            if act == "changed":
                Schedule.objects.update(cron="0 0 1 1 *")
            else:
                Schedule.objects.all().delete()
            at(START + timedelta(seconds=10))
            tick(workers)
            at(START + timedelta(seconds=40))  # a minute has passed
            tick(workers)
            row.save()
            tick(workers)
            assert enqueued == []
            at(START + MINUTE + timedelta(seconds=30))
            tick(workers)
        assert len(enqueued) == 1

    def test_a_release_that_is_rolled_out_beside_another_loses_no_run_of_either(self, store, use, at, enqueued):
        """Neither has the schedules of the other.  Afterwards, what passes while no worker runs is made up for."""
        use(store)
        old, new = {"report": "*/2 * * * *"}, {"other": "*/3 * * * *"}
        workers: dict[bool, Periodic] = {}
        for minute in range(13):
            for is_new in (False, True):
                with release(**(new if is_new else old)):
                    at(START.replace(second=0) + minute * MINUTE)
                    if minute in (4, 8):
                        workers.pop(is_new, None)  # it is started again
                    workers.setdefault(is_new, Periodic(lambda: 0.0)).tick()
        counted = [sum(key in id for id in enqueued) for key in ("report", "other")]
        assert counted == [6, 4]
        with release(**new):
            workers[True].tick()
            at(START + timedelta(hours=2))
            Periodic(lambda: 0.0).tick()
        assert len(enqueued) == 11

    def test_rows_are_not_gone_while_the_database_is_away(self, store, use, at, enqueued, monkeypatch):
        from django.db import OperationalError

        from django_jobs.schedules import rows

        def away() -> None:
            raise OperationalError("the database is away")

        use(store)
        with release():
            Schedule.objects.create(name="row", job="tests.tick", cron="0 10 * * *")
            Periodic(lambda: 0.0).tick()
            with monkeypatch.context() as cut:
                cut.setattr(rows, "database_entries", away)
                for hours in (1, 2):
                    at(START + timedelta(hours=hours))
                    Periodic(lambda: 0.0).tick()
            at(NEXT + timedelta(hours=1))
            Periodic(lambda: 0.0).tick()
        assert len(enqueued) == 1


def tick(workers: list[Periodic]) -> None:
    for worker in workers:
        worker.tick()


def test_runs_that_an_earlier_release_has_noted_in_their_queue_are_not_made_again(store, use, at, enqueued, make_job):
    use(store)
    with release(**DAILY):
        Periodic(lambda: 0.0).tick()
        store.enqueue("default", [make_job(schedule_run=("settings:report", ms(NEXT)))])
    with release(queue="mail", **DAILY):
        at(NEXT + timedelta(hours=5))
        Periodic(lambda: 0.0).tick()
        assert schedules.last_run(schedules.get_entry("report")) == NEXT
    assert enqueued == []
