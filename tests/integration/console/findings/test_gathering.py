"""What it costs to look: a bounded number of round trips, whatever the number of queues, in trouble, too."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from django_jobs import browse, metrics
from django_jobs.core.values import Controls, State
from django_jobs.operations import diagnosis
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.transport import Transport
from tests.conftest import Clock
from tests.integration.console.workflows import flows
from tests.support.console_data import Filler, worker_info

pytestmark = pytest.mark.django_db


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The round trips of the store: a pipeline is one."""
    made: list[str] = []
    for name in ("command", "run", "pipeline"):
        real = getattr(Transport, name)

        def counted(self: Any, *args: Any, _name: str = name, _real: Any = real, **more: Any) -> Any:
            made.append(f"{_name} {args[0]}" if _name == "command" else _name)
            return _real(self, *args, **more)

        monkeypatch.setattr(Transport, name, counted)
    return made


@pytest.mark.parametrize(("queues", "well", "ill"), [(1, 25, 60), (6, 25, 110), (500, 40, 260)])
def test_looking_costs_a_bounded_number_of_round_trips(
    safe_store: Store, clock: Clock, settings: Any, calls: list[str], queues: int, well: int, ill: int
) -> None:
    names = ["default", *(f"q{n}" for n in range(1, queues))]
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "QUEUES": {name: {} for name in names}}
    use_store(safe_store)
    filler = Filler(safe_store)

    def look() -> diagnosis.Report:
        safe_store.publish_worker("web-1:4711", worker_info(queues=names, started_at=clock(), children=[]), 600_000)
        browse.publish_snapshot()
        calls.clear()
        return diagnosis.check()

    report = look()
    assert (report.findings, list(report.unchecked)) == ([], [])
    assert len(calls) <= well, calls
    for name in names:
        for _ in range(3):
            filler.add("tests.limited", queue=name, controls=Controls(limit_key="k", limit=1))
        filler.claim(name, 3)
        for _ in range(11 if queues < 500 else 1):
            filler.make(State.RETRY, queue=name)
    clock.advance(3_600_000)
    report = look()
    assert len(calls) <= ill, calls
    stuck = [each for each in report.findings if each.cause == "hung"]
    assert len(stuck) == min(queues, 20)
    assert [each.number for each in report.unchecked if each.what == "work"] == [480] * (queues == 500)


def test_the_backlog_of_the_archive_is_looked_at_behind_that_of_busier_queues(
    safe_store: Store, make_store: Callable[..., Store], clock: Clock, settings: Any
) -> None:
    """The queues that are left out are counted."""
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "ARCHIVE": {"DAYS": 30}}
    archiving = make_store(archive=True)
    use_store(archiving)
    filler = Filler(archiving)
    filler.make(State.SUCCEEDED, queue="stuck")
    clock.advance(3_600_000)
    busier = [f"q{n:02}" for n in range(22)]
    for queue in 2 * busier[:6]:
        filler.make(State.SUCCEEDED, queue=queue)
    report = diagnosis.check()
    assert [each.queue for each in report.findings if each.kind == "archive"] == ["stuck"]
    assert [each.what for each in report.unchecked] == []
    for queue in 2 * busier[6:]:
        filler.make(State.SUCCEEDED, queue=queue)
    browse.publish_snapshot()
    said = diagnosis.check().unchecked_texts
    assert said == ["Whether the finished jobs of 3 queues wait too long for the archive was not checked."]


def test_workflows_that_are_not_looked_at_are_said_and_not_over(
    safe_store: Store, clock: Clock, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "ON_COMMIT": False}
    use_store(safe_store)
    stopped = flows.order(safe_store, dead="packed")
    (found,) = [each for each in diagnosis.check().findings if each.kind == "stopped_workflow"]
    clock.advance(1_000)
    whole, later = flows.order(safe_store), flows.order(safe_store)
    for limit in ("_LOOKED_AT", "_AT_ONCE"):
        monkeypatch.setattr(import_module("django_jobs.browse.workflows"), limit, 1)
    report = diagnosis.check()
    assert report.unchecked_texts == ["2 older workflows were not checked."]
    assert report.may_hide(found.key)
    for id in (whole, later, "w" + "0" * 32):
        assert not report.may_hide(found.key.replace(stopped, id))


@pytest.mark.parametrize("queues", [3, 25])
def test_a_damaged_queue_hides_the_trouble_of_no_other(
    safe_store: Store, clock: Clock, settings: Any, queues: int
) -> None:
    """Nobody serves it, so nobody mends it."""
    names = ["default", "broken", *(f"q{n}" for n in range(2, queues))]
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "QUEUES": {name: {} for name in names}}
    use_store(safe_store)
    Filler(safe_store).make(State.DEAD, queue="default")
    Filler(safe_store).add(queue="broken")
    key = safe_store.keys.of("broken")["queued"]
    safe_store.transport.command("DEL", key)
    safe_store.transport.command("SET", key, "junk")
    for counted_by in ("the page", "a worker"):
        if counted_by == "a worker" and not browse.publish_snapshot():
            break  # few queues are always counted by the page
        report = diagnosis.check()
        assert [each.queue for each in report.findings if each.cause == "dead"] == ["default"]
        (counts,) = [each for each in report.unchecked if each.what == "counts"]
        assert (counts.number, [name for name in names if name in counts.left]) == (1, ["broken"])
        assert 'django_jobs_jobs{queue="default",state="dead"} 1.0' in metrics.text().decode()
