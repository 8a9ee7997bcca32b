"""A process of `runworkers` is told of remote job types, and asks nobody itself."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobs.conf import QueueSettings
from django_jobs.core.values import Lane
from django_jobs.exceptions import NotKnownYet
from django_jobs.remote import type_cache
from django_jobs.remote.job_types import RemoteType
from django_jobs.remote.type_cache import MISSED, MOST_MISSED, Known
from django_jobs.worker.child.fetcher import Fetcher, StoreClock
from django_jobs.worker.child.gate import Gate
from django_jobs.worker.ipc import pair
from django_jobs.worker.messages import RemoteTypes, TypesReceived
from django_jobs.worker.parent.children import ChildHandle
from django_jobs.worker.shared_memory import SharedMemory
from tests.conftest import Seconds

PUSHED = RemoteType("php.pushed", "push", "at_least_once", 3, 0, 60, "https://example.com/", "")
PULLED = RemoteType("php.pulled", "pull", "at_least_once", 3, 0, 60, "", "")


@pytest.fixture
def told(settings: Any, time: Seconds, monkeypatch: pytest.MonkeyPatch) -> Known:
    """Nothing yet; and whoever asks the database has failed."""
    settings.DJANGO_JOBS = {"STORE": "memory", "QUEUES": {"default": {}, "pull": {}, "push": {}}, "API": {}}
    monkeypatch.setattr(type_cache, "read_rows", lambda: pytest.fail("the database is asked"))
    known = Known(time)
    known.is_told = True
    return known


def test_a_name_is_not_there_once_a_reading_that_began_after_the_question_did_not_have_it(
    told: Known, time: Seconds
) -> None:
    with pytest.raises(NotKnownYet):
        told.definition_of("php.pushed")
    time.now = 2.0
    told.replace_types(-1.0, [PULLED])
    with pytest.raises(NotKnownYet):
        told.definition_of("php.pushed")
    told.replace_types(1.0, [PULLED])
    assert told.definition_of("php.pushed") is None
    time.now = MISSED + 1  # it may have been made since
    with pytest.raises(NotKnownYet):
        told.definition_of("php.pushed")
    told.replace_types(time.now, [PULLED, PUSHED])
    assert told.definition_of("php.pushed") is not None


def test_a_definition_that_a_thread_makes_while_types_are_learned_spoils_nothing(told: Known) -> None:
    class Compared(RemoteType):
        """Two types are compared, and meanwhile another thread needs a definition for the first time."""

        def __eq__(self, other: object) -> bool:
            told.definitions.setdefault(PUSHED, other_definition)
            return tuple(self) == other

        __hash__ = RemoteType.__hash__

    told.replace_types(1.0, [PUSHED, Compared(*PULLED)])
    assert told.definition_of("php.pulled") is not None
    other_definition = told.definition_of("php.pushed")
    assert other_definition is not None
    del told.definitions[PUSHED]
    told.replace_types(2.0, [PUSHED, Compared(*PULLED)])
    assert told.definition_of("php.pulled") is not None


def test_a_flood_of_unknown_names_is_not_remembered_without_bound(told: Known, time: Seconds) -> None:
    told.replace_types(-1.0, [])
    for number in range(MOST_MISSED):
        with pytest.raises(NotKnownYet):
            told.definition_of(f"php.{number}")
    assert told.definition_of("php.more") is None
    assert len(told.missed) == MOST_MISSED
    time.now += MISSED
    with pytest.raises(NotKnownYet):
        told.definition_of("php.more")
    assert len(told.missed) == 1


def test_before_anything_is_known_only_queues_of_django_jobs_are_looked_into(told: Known) -> None:
    assert told.left_to_pull_workers(["default", "pull", "push"]) == {"pull", "push"}
    told.replace_types(0.0, [PULLED, PUSHED])
    assert told.left_to_pull_workers(["default", "pull", "push"]) == {"pull"}


def test_without_the_api_every_queue_is_looked_into(told: Known, settings: Any) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "API": None}
    assert told.left_to_pull_workers(["default", "pull"]) == set()
    assert told.definition_of("php.pushed") is None


def test_a_worker_whose_queues_are_all_of_pull_workers_asks_the_store_nothing(
    told: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    told.replace_types(0.0, [PULLED])
    monkeypatch.setattr(type_cache, "_known", told)
    gate = Gate()
    gate.ended.set()  # so that it need not wait
    store: Any = None
    fetcher = Fetcher(
        store, "w", [QueueSettings("pull")], lane=Lane.SHARED, lease=1000, strict=False,
        gate=gate, clock=StoreClock(), size=lambda queue: 1,
    )  # fmt: skip
    assert fetcher.fetch() is None
    fetcher.picker.suspect("pull")
    looked_into = fetcher.fetch()
    assert looked_into is not None
    assert looked_into[1].claims == []


def test_a_child_that_does_not_listen_is_not_told_again_until_it_does() -> None:
    """What it is told when it has to end must find room in its channel."""
    ours, theirs = pair()
    child = ChildHandle("w", Lane.SHARED, 0, ours, SharedMemory([], 0))
    child.send_types(RemoteTypes(1.0, [PUSHED._asdict()]))
    child.send_types(RemoteTypes(2.0, []))
    assert theirs.receive() == [RemoteTypes(1.0, [PUSHED._asdict()])]
    theirs.send(TypesReceived())
    child.read()
    child.send_types(RemoteTypes(3.0, []))
    assert theirs.receive() == [RemoteTypes(3.0, [])]
    for end in (ours, theirs):
        end.close()
