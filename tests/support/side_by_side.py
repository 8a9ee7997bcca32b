"""The suite side by side: files are shared out among the processes of pytest-xdist, tests that measure time come last.

`pytest -n 4` runs in stages.  First, whole files in four processes (what a module's fixture made serves all its tests).
Then tests marked `timed(beside=1)` in two processes, when the others have ended with the servers they had: their
bounds are seconds.  Last, tests marked `timed` one by one in one process: their bounds are less.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import islice
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from xdist.report import report_collection_diff
from xdist.workermanage import WorkerController, parse_tx_spec_config

_FOLDER = pytest.StashKey["TemporaryDirectory[str]"]()
#: Files of these folders first: they take longest, and a long file that comes last keeps the others waiting.
LONG = ("tests/integration/", "tests/browser/", "tests/docs/")
#: Files of this folder wait more than they compute: they are spread over the first four fifths of the others.
WAITING = "tests/survival/"


class Stage:
    """Tests that `width` processes share, in parts that one process runs in order."""

    def __init__(self, width: int, parts: list[list[int]]) -> None:
        self.width, self.parts = width, parts


class SideBySide:
    """A scheduler of pytest-xdist: see `xdist.scheduler.protocol.Scheduling` for who calls what."""

    def __init__(self, config: pytest.Config, timed: Path, expected: int) -> None:
        self._config, self._expected = config, expected
        self._told = timed
        self._collections: dict[WorkerController, list[str]] = {}
        self._sent: dict[WorkerController, list[int]] = {}
        self._ids: list[str] | None = None
        #: The stage that runs, and those after it.
        self._stages: list[Stage] = []
        #: Processes that go on in the next stage, each with one test of it that it cannot begin; empty while a stage
        #: has parts to share out.
        self._keepers: dict[WorkerController, int] = {}

    @property
    def nodes(self) -> list[WorkerController]:
        return list(self._sent)

    @property
    def collection_is_completed(self) -> bool:
        return len(self._collections) >= self._expected

    @property
    def tests_finished(self) -> bool:
        """Can every process be told that there is nothing more?  One that has a single test waits for that word."""
        left = self._keepers or any(stage.parts for stage in self._stages)
        return self.collection_is_completed and not left and all(len(sent) < 2 for sent in self._sent.values())

    @property
    def has_pending(self) -> bool:
        return any(stage.parts for stage in self._stages) or any(self._sent.values())

    def add_node(self, node: WorkerController) -> None:
        self._sent[node] = []

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        self._collections[node] = list(collection)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        self._sent[node].remove(item_index)
        self._share_out()

    def mark_test_pending(self, item: str) -> None:
        assert self._ids is not None
        self._stages[0].parts.insert(0, [self._ids.index(item)])
        self._share_out()

    def remove_pending_tests_from_node(self, node: WorkerController, indices: Sequence[int]) -> None:
        raise NotImplementedError

    def remove_node(self, node: WorkerController) -> str | None:
        """It has ended.  Returns the test during which it died, if it did; those it had not begun go to others."""
        sent = self._sent.pop(node)
        held = self._keepers.pop(node, None)
        if held is not None:  # it was not told to begin this one
            sent.remove(held)
            self._stages[1].parts.insert(0, [held])
        died = sent.pop(0) if sent else None
        if sent:
            self._stages[0].parts.insert(0, sent)
        self._share_out()
        return None if died is None or self._ids is None else self._ids[died]

    def schedule(self) -> None:
        """All processes have told what they found: begin, or let one take part that came later."""
        if self._ids is None:
            if not self._agree():
                return
            self._ids = next(iter(self._collections.values()))
            beside: dict[str, int] = json.loads(self._told.read_text())
            numbered = sorted(enumerate(self._ids), key=lambda entry: rank(entry[1]))
            others = [(index, id) for index, id in numbered if id not in beside]
            by_file: dict[str, list[int]] = {}
            for index, id in others:
                by_file.setdefault(path(id), []).append(index)
            self._stages = [Stage(self._expected, [by_file[file] for file in mixed(list(by_file))])]
            for number in sorted(set(beside.values()), reverse=True):
                if parts := [[index] for index, id in numbered if beside.get(id) == number]:  # -k may leave none
                    self._stages.append(Stage(number + 1, parts))
        self._share_out()

    def _agree(self) -> bool:
        (first, ids), *others = self._collections.items()
        found = True
        for node, collection in others:
            if difference := report_collection_diff(ids, collection, first.gateway.id, node.gateway.id):
                found = False
                report = pytest.CollectReport(node.gateway.id, "failed", longrepr=difference, result=[])
                self._config.hook.pytest_collectreport(report=report)
        return found

    def _share_out(self) -> None:
        """Give parts to whoever has less than two tests: it begins a test when it knows the next one, or the end."""
        if not self._collections or not self._stages:
            return
        for node in list(self._sent)[self._stages[0].width :]:
            if not node.shutting_down:  # it came for one that died in an earlier stage
                node.shutdown()
        nodes = [node for node in self._sent if not node.shutting_down]
        parts = self._stages[0].parts
        for node in nodes:
            while parts and len(self._sent[node]) < 2 and (node not in self._keepers or nodes == [node]):
                self._send(node, parts.pop(0))
        if parts:
            return
        if len(self._stages) == 1:
            for node in nodes:
                node.shutdown()
            return
        after = self._stages[1]
        for node in nodes[::-1]:
            if node not in self._keepers and after.parts and len(self._keepers) < after.width:
                # It may have one test left, and begins that when it is told this one.
                self._keepers[node] = after.parts[0][0]
                self._send(node, after.parts.pop(0))
            elif node not in self._keepers:
                node.shutdown()
        if all(self._sent[node] == [self._keepers.get(node)] for node in self._sent):
            self._keepers.clear()
            del self._stages[0]
            self._share_out()

    def _send(self, node: WorkerController, indices: list[int]) -> None:
        self._sent[node] += indices
        if indices:
            node.send_runtest_some(indices)


def path(id: str) -> str:
    return id.partition("::")[0]


def mixed(files: list[str]) -> list[str]:
    """Return these files in the order in which they begin: at no time do all processes wait, or all compute."""
    waiting = [file for file in files if file.startswith(WAITING)]
    others = iter([file for file in files if not file.startswith(WAITING)])
    step = (len(files) - len(waiting)) * 4 // (5 * max(len(waiting), 1))
    return [file for each in waiting for file in (each, *islice(others, step))] + list(others)


def rank(id: str) -> int:
    return next((number for number, folder in enumerate(LONG) if id.startswith(folder)), len(LONG))


# -- hooks, which tests/conftest.py takes over --------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SideBySide | None:
    """`--dist` with another value than the usual one means the scheduler of that name."""
    if config.getvalue("dist") != "load":
        return None
    for named in config.args:
        if not Path(path(named)).exists():  # the processes would only say that they found nothing
            raise pytest.UsageError(f"There is no file or folder {path(named)}.")
    return SideBySide(config, _list(config), len(parse_tx_spec_config(config)))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """A process tells ids of tests and nothing else: which of them measure time, it writes here."""
    node.workerinput["timed"] = str(_list(node.config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without other processes, too, tests that measure time come last: what others leave to be cleared away is done."""
    items.sort(key=lambda item: -beside(item) if is_timed(item) else -inf)
    if told := getattr(config, "workerinput", {}).get("timed"):
        # Each process writes the same, and none shall be read half.
        part = Path(f"{told}.{os.getpid()}")
        part.write_text(json.dumps({item.nodeid: beside(item) for item in items if is_timed(item)}))
        part.replace(told)


def is_timed(item: pytest.Item) -> bool:
    return item.get_closest_marker("timed") is not None


def beside(item: pytest.Item) -> int:
    """How many other tests may run beside one that measures time."""
    mark = item.get_closest_marker("timed")
    return 0 if mark is None else int(mark.kwargs.get("beside", 0))


def _list(config: pytest.Config) -> Path:
    """A file of this run."""
    folder = config.stash.get(_FOLDER, None)
    if folder is None:
        folder = config.stash[_FOLDER] = TemporaryDirectory(prefix="djt")
        config.add_cleanup(folder.cleanup)
    return Path(folder.name) / "timed.json"
