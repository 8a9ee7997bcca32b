"""How the tests are shared out among processes: every one once, those that measure time when the others have ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.side_by_side import SideBySide


class Process:
    """A process of pytest-xdist as its scheduler sees it: it begins a test when it knows the next one, or the end."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.tests: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.tests += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def can_begin(self) -> bool:
        return len(self.tests) > 1 or (self.shutting_down and bool(self.tests))


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[tuple[str, int, set[str]]]]:
    """Run tests of these ids in three processes; returns who began which, and which processes were there then.

    (One that is started for one that died ends at once, if there is nothing left for it.)"""

    def go(ids: list[str], timed: dict[str, int], dies: str = "") -> list[tuple[str, int, set[str]]]:
        config: Any = SimpleNamespace()
        told = tmp_path / "timed.json"
        told.write_text(json.dumps(timed))
        scheduler = SideBySide(config, told, expected=3)
        begun: list[tuple[str, int, set[str]]] = []
        living: list[Any] = []

        def join(name: str) -> None:
            living.append(Process(name))
            scheduler.add_node(living[-1])
            scheduler.add_node_collection(living[-1], ids)
            if scheduler.collection_is_completed:
                scheduler.schedule()

        for name in ("a", "b", "c"):
            join(name)
        while living:
            before = len(begun), len(living), sum(process.shutting_down for process in living)
            for process in list(living):
                if process.can_begin:
                    index = process.tests[0]
                    begun.append(
                        (process.gateway.id, index, {each.gateway.id for each in living if each.tests or not dies})
                    )
                    if ids[index] == dies:
                        living.remove(process)
                        assert scheduler.remove_node(process) == dies
                        join(f"after {process.gateway.id}")
                        continue
                    process.tests.pop(0)
                    scheduler.mark_test_complete(process, index)
                if process.shutting_down and not process.tests:
                    living.remove(process)
                    assert scheduler.remove_node(process) is None
            if scheduler.tests_finished:
                for process in living:
                    process.shutdown()
            assert (len(begun), len(living), sum(process.shutting_down for process in living)) != before, (
                "nobody goes on"
            )
        return begun

    return go


IDS = [f"tests/unit/test_{file}.py::test_{n}" for file in "abcdefg" for n in range(3)]


ALONE = [{}, dict.fromkeys(IDS[:1], 0), dict.fromkeys(IDS[2:12:3], 0)]
PAIRS = [{}, dict.fromkeys(IDS[3:13:3], 1), dict.fromkeys(IDS, 1)]


@pytest.mark.parametrize("alone", [*ALONE, dict.fromkeys(IDS, 0)], ids=len)
@pytest.mark.parametrize("pairs", PAIRS, ids=len)
@pytest.mark.parametrize("dies", ["", IDS[0], IDS[5], IDS[-1]])
def test_every_test_runs_once_and_no_more_than_it_allows_run_beside_one_that_measures_time(
    run: Any, alone: dict[str, int], pairs: dict[str, int], dies: str
) -> None:
    timed = pairs | alone
    begun = run(IDS, timed, dies)
    assert sorted(index for _, index, _ in begun) == list(range(len(IDS)))
    for _, index, there in begun:
        if IDS[index] in timed:
            assert len(there) <= timed[IDS[index]] + 1


def test_a_test_that_measures_time_and_was_deselected_stops_no_other(run: Any) -> None:
    gone = {"tests/unit/test_gone.py::test_1": 1, "tests/unit/test_gone.py::test_0": 0}
    begun = run(IDS, gone | dict.fromkeys(IDS[:3], 0))
    assert sorted(index for _, index, _ in begun) == list(range(len(IDS)))


def test_a_file_is_one_process_s(run: Any) -> None:
    begun = run(IDS, {})
    assert len({(who, IDS[index].partition("::")[0]) for who, index, _ in begun}) == 7


def test_long_folders_come_first(run: Any) -> None:
    ids = ["tests/unit/test_a.py::test", "tests/integration/test_b.py::test", "tests/docs/test_c.py::test"]
    assert [index for _, index, _ in run(ids, {})][:1] == [1]


def test_files_that_wait_are_spread_over_those_that_compute(run: Any) -> None:
    ids = [*IDS, *(f"tests/survival/test_{file}.py::test_{n}" for file in "xy" for n in range(3))]
    waits = [ids[index].startswith("tests/survival/") for _, index, _ in run(ids, {})]
    assert waits.count(True) == 6
    assert waits[:3].count(True) == 1, "two of the three processes wait at once"
    assert not waits[-1]
