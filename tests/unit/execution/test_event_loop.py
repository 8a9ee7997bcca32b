"""The event loop of a child: every job that is submitted begins, whatever moment it comes at."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from django_jobs.worker.child.event_loop import EventLoop
from tests.support.waiting import wait_until


class Executor:
    async def run_on_loop(self, prepared: Any) -> Any:
        return prepared.name


def prepared(name: str) -> Any:
    plan, running = SimpleNamespace(on_loop=True), SimpleNamespace(name=name)
    return SimpleNamespace(name=name, plan=plan, running=running, claim=SimpleNamespace(id=""), job=running)


@pytest.fixture
def ended() -> list[Any]:
    return []


@pytest.fixture
def loop(ended: list[Any]) -> EventLoop:
    loop = EventLoop(100, ended.append)
    loop.executor = Executor()  # type: ignore[assignment]
    return loop


def test_jobs_of_many_threads_all_begin(loop: EventLoop, ended: list[Any]) -> None:
    threads = [
        threading.Thread(target=lambda n=n: [loop.submit(prepared(f"{n}.{i}")) for i in range(500)]) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: len(ended) == 2000, "all have run")
    assert len(set(ended)) == 2000
    assert loop.is_idle


def test_a_job_that_comes_when_the_loop_has_just_begun_the_others_begins_too(loop: EventLoop, ended: list[Any]) -> None:
    class LateJob(deque[Any]):
        """When the loop has found that none is left, one comes."""

        is_late = False

        def __len__(self) -> int:
            if super().__len__() == 0 and not self.is_late:
                self.is_late = True
                loop.submit(prepared("late"))
                return 0
            return super().__len__()

    loop._new = LateJob()
    loop.submit(prepared("first"))
    wait_until(lambda: sorted(ended) == ["first", "late"], "both have run")
