"""A deploy renames a job or changes its limit: old and new code, on one store, share what belongs to the job type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest

from django_jobs import get_job, job, operations
from django_jobs.browse import Match
from django_jobs.browse.counts import queue_stats
from django_jobs.browse.groups import error_groups
from django_jobs.browse.trends import type_trend
from django_jobs.browse.why import why
from django_jobs.conf import QueueSettings
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import Lane, State
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.execution.executor import Executor, Prepared
from django_jobs.execution.settle import end
from django_jobs.schedules.scheduler import Periodic
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.worker.child.fetcher import Fetcher, StoreClock
from django_jobs.worker.child.gate import Gate
from django_jobs.worker.maintenance.tasks import MaintenanceTasks
from tests.conftest import Clock
from tests.contract.acts import LEASE, Q, info, state_of

OLD, NEW = "shop.mail", "shop.receipt"
RENAMED = {"name": NEW, "aliases": [OLD]}
MINUTE = 60_000
#: `max_concurrency` as it is, and per value of an argument: the same number for all jobs of a test.
KINDS: dict[str, dict[str, Any]] = {"type": {}, "value": {"concurrency_key": "account"}, "made": {}}
KINDS["made"] = {"concurrency_key": lambda account, fails=False: account % 10}


def send(account: int, fails: bool = False) -> None:
    if fails:
        raise ValueError("no")


def tidy() -> None: ...


class Code:
    """The project as one deploy has it: its jobs, its web process, and workers."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self._patch = store, monkeypatch
        self._names: dict[str, JobDefinition] = {}
        self._aliases: dict[str, str] = {}
        self.task: Any = None
        self._executor = Executor(close_connections=False)
        self._fetcher = Fetcher(
            store, "w", [QueueSettings(Q)], lane=Lane.SHARED, lease=LEASE, strict=False, gate=Gate(),
            clock=StoreClock(), size=lambda queue: 100,
        )  # fmt: skip
        self.running: list[Prepared] = []

    @contextmanager
    def here(self) -> Iterator[None]:
        """This process runs this code."""
        with self._patch.context() as patch:
            patch.setattr(registry, "_by_name", self._names)
            patch.setattr(registry, "_aliases", self._aliases)
            registry.changed()
            yield
        registry.changed()

    def has(self, function: Callable[..., None] = send, **options: Any) -> Code:
        with self.here():
            self.task = job(**options)(function)
        return self

    def enqueue(self, number: int = 1, **options: Any) -> list[str]:
        with self.here():
            return [self.task.using(**options).enqueue(7).id for _ in range(number)]

    def begin(self) -> list[str]:
        """A worker that is free begins what it may: the ids of these jobs, in order."""
        began = []
        with self.here():
            fetcher = self._fetcher
            fetcher.picker.suspect()
            while fetcher.expects_jobs:
                fetched = fetcher.fetch()
                for claim in fetched[1].claims if fetched else ():
                    prepared = self._executor.prepare(claim, self.store)
                    if isinstance(prepared, Prepared):
                        began.append(claim.id)
                        self.running.append(prepared)
                    else:  # it waits again: the store wakes a worker for it
                        end(self.store, prepared)
                        fetcher.picker.suspect()
        return began

    def finish(self, number: int = 1) -> None:
        """The first jobs that it runs end."""
        with self.here():
            for prepared in self.running[:number]:
                end(self.store, self._executor.run_here(prepared))
        del self.running[:number]

    def maintain(self) -> None:
        """Its maintenance process begins, and works until it has nothing to do for a while."""
        with self.here():
            tasks = MaintenanceTasks(self.store, [Q], LEASE)
            while tasks.due < monotonic() + 0.5:
                tasks.step(monotonic())


@pytest.fixture
def deploy(store: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Code]:
    use_store(store)
    return lambda *function, **options: Code(store, monkeypatch).has(*function, **options)


# -- a new name ----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_jobs_of_both_names_share_their_limit(deploy: Callable[..., Code], kind: str) -> None:
    limit = {"max_concurrency": 1, **KINDS[kind]}
    old, new = deploy(name=OLD, **limit), deploy(**RENAMED, **limit)
    [first] = old.enqueue()
    assert old.begin() == [first]
    [second] = new.enqueue()
    assert new.begin() == []
    old.finish()
    assert new.begin() == [second]
    [third] = old.enqueue()
    assert old.begin() == []
    new.finish()
    assert old.begin() == [third]


@pytest.mark.parametrize("kind", KINDS)
def test_old_code_that_meets_both_names_at_once_keeps_the_limit_and_every_job(
    deploy: Callable[..., Code], kind: str
) -> None:
    """It knows the limit of one name only, and the first job it takes has the other name."""
    limit = {"max_concurrency": 1, **KINDS[kind]}
    old, new = deploy(name=OLD, **limit), deploy(**RENAMED, **limit)
    [renamed], [other] = new.enqueue(), old.enqueue()
    assert old.begin() == [other]
    assert new.begin() == []
    assert state_of(new.store, renamed) is State.BLOCKED
    old.finish()
    assert new.begin() == [renamed]


@pytest.mark.parametrize("unique_on", [None, ["account"]])
def test_jobs_of_both_names_share_their_unique_key(deploy: Callable[..., Code], unique_on: Any) -> None:
    options = {"unique": "success", "unique_on": unique_on}
    old, new = deploy(name=OLD, **options), deploy(**RENAMED, **options)

    def enqueue(code: Code, by_key: bool) -> JobHandle | None:
        with code.here():
            return code.task.enqueue_unique_by_key("k", 7) if by_key else code.task.enqueue_unique(7)

    for by_key in (False, True):
        assert enqueue(old, by_key) is not None
        assert enqueue(new, by_key) is None


def test_the_same_id_under_both_names_is_one_job(deploy: Callable[..., Code]) -> None:
    old, new = deploy(name=OLD), deploy(**RENAMED)
    assert old.enqueue(job_id="mine") == new.enqueue(job_id="mine") == ["mine"]
    assert old.begin() == ["mine"]
    assert new.begin() == []


@pytest.mark.parametrize("called", [OLD, NEW])
def test_a_pause_holds_jobs_of_both_names(deploy: Callable[..., Code], called: str) -> None:
    old, new = deploy(name=OLD), deploy(**RENAMED)
    with new.here():
        operations.pause(Q, name=called, reason="r")
        [stats] = queue_stats([Q])
        assert list(stats.paused_types) == [NEW]
    ids = [*old.enqueue(), *new.enqueue()]
    assert old.begin() == new.begin() == []
    assert [state_of(new.store, id) for id in ids] == [State.BLOCKED] * 2
    with new.here():
        assert why(info(new.store, ids[0]))[1].cause == why(info(new.store, ids[1]))[1].cause == "type_paused"
        ended = operations.resume(Q, name=called)
        assert ended is not None
        assert ended.reason == "r"
    assert new.begin() == ids


def test_a_pause_by_old_code_holds_jobs_of_both_names(deploy: Callable[..., Code]) -> None:
    old, new = deploy(name=OLD), deploy(**RENAMED)
    with old.here():
        operations.pause(Q, name=OLD)
    ids = [*old.enqueue(), *new.enqueue()]
    assert new.begin() == []
    with old.here():
        operations.resume(Q, name=OLD)
    assert new.begin() == ids


@pytest.mark.django_db
def test_its_schedule_fires_once(deploy: Callable[..., Code], clock: Clock) -> None:
    old, new = deploy(function=tidy, name=OLD, cron="* * * * *"), deploy(function=tidy, **RENAMED, cron="* * * * *")
    sides = [(code, Periodic(time=lambda: clock.now / 1000)) for code in (old, new)]
    for minute in range(4):
        for code, periodic in sides[:: 1 if minute % 2 else -1]:
            with code.here():
                periodic.tick()
        clock.advance(MINUTE)
    with new.here():
        [stats] = queue_stats([Q])
    assert stats.counts["queued"] == 3


def test_pages_and_counts_know_one_type_by_its_current_name(deploy: Callable[..., Code], clock: Clock) -> None:
    old, new = deploy(name=OLD, max_attempts=1), deploy(**RENAMED, max_attempts=1)
    new.store.sample([Q])
    clock.advance(10 * MINUTE)
    for code in (old, new):
        ids = code.enqueue()
        with code.here():
            failing = code.task.enqueue(7, fails=True)
        assert code.begin() == [*ids, failing.id]
        code.finish(2)
    with new.here():
        assert get_job(failing.id).name == NEW
        [stats] = queue_stats([Q])
        by_type = {key: number for key, number in stats.totals.items() if ":" in key}
        assert by_type == {f"enqueued:{NEW}": 4, f"succeeded:{NEW}": 2, f"failed:{NEW}": 2, f"dead:{NEW}": 2}
        assert new.store.times([Q])[Q].keys() == {NEW}
        for name in (OLD, NEW):
            [group] = error_groups(State.DEAD, Match(name=name))
            assert (group.count, group.names) == (2, {NEW: 2})
        assert type_trend([Q], NEW, "hour").sums == {"succeeded": 2, "failed": 2, "dead": 2}


# -- another limit -------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_higher_limit_counts_for_older_jobs_and_those_go_first(deploy: Callable[..., Code], kind: str) -> None:
    old, new = (deploy(name=OLD, max_concurrency=most, **KINDS[kind]) for most in (1, 3))
    before = old.enqueue(4)
    assert old.begin() == before[:1]
    after = new.enqueue(2)
    assert new.begin() == before[1:3]
    assert [state_of(new.store, id) for id in after] == [State.BLOCKED] * 2
    old.finish()
    assert new.begin() == before[3:]
    new.finish(3)
    assert new.begin() == after


@pytest.mark.parametrize("kind", KINDS)
def test_a_higher_limit_lets_in_what_waits_when_the_first_new_worker_starts(
    deploy: Callable[..., Code], kind: str
) -> None:
    old, new = (deploy(name=OLD, max_concurrency=most, **KINDS[kind]) for most in (1, 3))
    before = old.enqueue(5)
    assert old.begin() == before[:1]
    old.maintain()
    assert old.begin() == []
    new.maintain()
    assert new.begin() == before[1:3]


def test_a_higher_limit_is_used_up_after_the_first_end(deploy: Callable[..., Code]) -> None:
    old, new = (deploy(name=OLD, max_concurrency=most) for most in (1, 3))
    before = old.enqueue(5)
    assert old.begin() == before[:1]
    old.finish()
    assert new.begin() == before[1:4]


@pytest.mark.parametrize("kind", KINDS)
def test_a_lower_limit_counts_for_older_jobs(deploy: Callable[..., Code], kind: str) -> None:
    old, new = (deploy(name=OLD, max_concurrency=most, **KINDS[kind]) for most in (5, 2))
    before = old.enqueue(6)
    after = new.enqueue(2)
    assert new.begin() == before[:2]
    with new.here():
        reason = why(info(new.store, before[2]))[1]
        assert (reason.cause, reason.values["limit"]) == ("limit", 2)
    ran = [*before[:2]]
    while new.running:
        new.finish()
        ran += new.begin()
        assert len(new.running) <= 2
    assert ran == before + after


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [0, 9])
def test_a_limit_that_appears_counts_for_older_jobs_without_an_attempt(
    deploy: Callable[..., Code], kind: str, most: int
) -> None:
    before_it: dict[str, Any] = {"max_concurrency": most} if most and kind != "type" else {}
    old, new = deploy(name=OLD, **before_it), deploy(name=OLD, max_concurrency=2, **KINDS[kind])
    before = old.enqueue(5, priority=3)
    assert new.begin() == before[:2]
    assert [state_of(new.store, id) for id in before[2:]] == [State.BLOCKED] * 3
    assert info(new.store, before[4]).attempts == ()
    new.finish()
    assert new.begin() == before[2:3]


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_that_vanishes_holds_nothing_back(deploy: Callable[..., Code], kind: str) -> None:
    old, new = deploy(name=OLD, max_concurrency=1, **KINDS[kind]), deploy(name=OLD)
    before = old.enqueue(3)
    assert old.begin() == before[:1]
    new.maintain()
    assert new.begin() == before[1:]
    more = old.enqueue(2)
    assert new.begin() == more


def test_code_that_does_not_know_a_type_lets_in_only_what_its_limit_allows(deploy: Callable[..., Code]) -> None:
    new, other = deploy(max_concurrency=1, name=NEW), deploy(tidy)
    ids = new.enqueue(3)
    assert new.begin() == ids[:1]
    other.maintain()
    assert [state_of(new.store, id) for id in ids[1:]] == [State.BLOCKED] * 2


@pytest.mark.parametrize("numbers", [(1, 3), (3, 1), (2, 0), (0, 2)])
def test_side_by_side_no_more_run_than_the_greater_limit_allows_and_all_run_in_their_order(
    deploy: Callable[..., Code], numbers: tuple[int, int]
) -> None:
    old, new = (deploy(name=OLD, max_concurrency=most) for most in numbers)
    greatest = max(numbers) if 0 not in numbers else 100
    waiting, ran = [], []
    for _ in range(6):
        waiting += [*old.enqueue(), *new.enqueue()]
    for _ in waiting:
        for code in (new, old):
            ran += code.begin()
            assert len(old.running) + len(new.running) <= greatest
            code.finish()
    if 0 in numbers:  # a job without a limit meets its limit when it is claimed, and others of that claim begin
        ran, waiting = sorted(ran), sorted(waiting)
    assert ran == waiting


def test_jobs_of_a_type_that_dropped_its_oldest_name_count_under_its_new_identity(deploy: Callable[..., Code]) -> None:
    old, new, last = (
        deploy(**names, max_concurrency=1, **KINDS["value"]) for names in ({"name": OLD}, RENAMED, {"name": NEW})
    )
    both = {*new.enqueue(), *last.enqueue()}
    ran = set()
    for _ in range(2):
        ran |= {*last.begin()}
        assert len(last.running) == 1
        assert old.begin() == []
        last.finish()
    assert ran == both
