"""QUEUES with patterns: queue names are data, and everything that names a queue takes those that a pattern covers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from django_jobs import Retry, UnknownQueue, browse, chain, get_job, job, operations
from django_jobs.browse.health import unserved
from django_jobs.checks import check_jobs
from django_jobs.conf import QueueSettings, get_settings
from django_jobs.conf.queues import queues_of
from django_jobs.core import registry
from django_jobs.core.values import WorkerInfo
from django_jobs.enqueueing.submit import enqueue_by_name
from django_jobs.exceptions import QueueFull
from django_jobs.management.commands.runworkers import _choose
from django_jobs.models import Schedule
from django_jobs.remote.models import RemoteJobType
from django_jobs.stores import get_store
from django_jobs.testing import Jobs
from django_jobs.worker.served_queues import MOST_FOUND, ServedQueues
from tests.integration.sample_jobs import receipt

QUEUES: dict[str, Any] = {
    "default": {},
    "tenant-*": {"MAX_CONCURRENCY": 5},
    "tenant-vip-*": {"MAX_LENGTH": 2, "PRIORITY": 9},
    "tenant-7": {"PRIORITY": 3},
}


@pytest.fixture(autouse=True)
def _patterns() -> Iterator[None]:
    with override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": QUEUES}):
        yield


@job(name="tests.patterns.of_tenant", queue="tenant-1")
def of_tenant() -> str:
    return "done"


registry.unregister("tests.patterns.of_tenant")  # it is known only in its test: elsewhere the checks miss its queue


@job(name="tests.patterns.moves")
def moves(queue: str) -> None:
    raise Retry(queue=queue)


short = st.text(alphabet="ab-", max_size=3)
keys = st.dictionaries(st.one_of(short.filter(bool), short.map(lambda text: f"{text}*")), st.integers(), max_size=8)


@given(keys, st.text(alphabet="ab-", min_size=1, max_size=4))
def test_an_exact_name_wins_and_then_the_longest_pattern(entries: dict[str, int], name: str) -> None:
    queues = queues_of({key: QueueSettings(key, priority=number) for key, number in entries.items()})
    fitting = [key for key in entries if key.endswith("*") and name.startswith(key[:-1])]
    expected = entries.get(name, entries[max(fitting, key=len)] if fitting else None)
    assert (name in queues) is (expected is not None)
    if expected is None:
        assert queues.get(name) is None
        with pytest.raises(KeyError):
            queues[name]
    else:
        assert queues[name] == queues.get(name) == QueueSettings(name, priority=expected)
    assert list(queues) == [key for key in entries if not key.endswith("*")]


@pytest.mark.parametrize(
    "name", ["tenant-*", "tenant-a b", "tenant-{1}", "tenant-" + "x" * 100, "tenant-\n", "", None, 5]
)
def test_a_pattern_stands_for_no_name_that_a_queue_cannot_have(name: Any) -> None:
    assert name not in get_settings().queues


WAYS: dict[str, Callable[[str], Any]] = {
    "using": lambda queue: receipt.using(queue=queue).enqueue(7),
    "by name": lambda queue: enqueue_by_name("sample.receipt", [7], queue=queue),
    "workflow": lambda queue: chain(receipt.using(queue=queue).s(7)).enqueue(),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_job_may_go_to_each_queue_that_a_pattern_covers(jobs: Jobs, way: str) -> None:
    WAYS[way]("tenant-42")
    assert get_store().stats(["tenant-42"])[0].counts["queued"] == 1
    jobs.run_all()
    assert get_store().stats(["tenant-42"])[0].counts["succeeded"] == 1


@pytest.mark.parametrize("way", WAYS)
def test_another_queue_is_refused_with_names_and_patterns(jobs: Jobs, way: str) -> None:
    known = "default, tenant-7, tenant-vip-\\*, tenant-\\*"
    with pytest.raises(UnknownQueue, match=f"'xyz' is not in .* Known queues: {known}"):
        WAYS[way]("xyz")


def test_a_job_type_and_a_retry_may_name_one(jobs: Jobs) -> None:
    registry.register(of_tenant)  # type: ignore[arg-type]
    try:
        handle, moved = of_tenant.enqueue(), moves.enqueue("tenant-2")
        jobs.run_all()
        assert not [found for found in check_jobs() if found.id == "django_jobs.E009" and found.obj is of_tenant]
    finally:
        registry.unregister("tests.patterns.of_tenant")
    assert (get_job(handle.id).queue, get_job(handle.id).result) == ("tenant-1", "done")
    assert get_job(moved.id).queue == "tenant-2"


@pytest.mark.django_db
def test_schedules_and_remote_types_may_name_one() -> None:
    schedule = Schedule(name="x", job="sample.receipt", cron="* * * * *", args=[1], queue="tenant-42")
    schedule.full_clean()
    schedule.queue = "xyz"
    with pytest.raises(ValidationError, match=r"tenant-\*"):
        schedule.full_clean()
    RemoteJobType(name="remote.a", queue="tenant-42").clean()
    with pytest.raises(ValidationError):
        RemoteJobType(name="remote.a", queue="xyz").clean()


def test_options_are_those_of_the_pattern(jobs: Jobs) -> None:
    call = receipt.using(queue="tenant-vip-1")
    call.enqueue_many([(1,), (2,)])
    with pytest.raises(QueueFull):
        call.enqueue(3)
    receipt.using(queue="tenant-vip-2").enqueue(3)


@pytest.mark.django_db
def test_operators_work_on_such_queues_by_name(jobs: Jobs) -> None:
    handle = receipt.using(queue="tenant-42").enqueue(7)
    assert browse.queue_names() == ["default", "tenant-7", "tenant-42"]
    assert browse.usable_queues() == ["default", "tenant-7", "tenant-42"]
    operations.pause("tenant-42", reason="trouble")
    assert browse.why(get_store().get("tenant-42", handle.id))[1].cause == "queue_paused"  # type: ignore[arg-type]
    out = StringIO()
    call_command("jobs", "stats", "--json", stdout=out)
    assert json.loads(out.getvalue())["queues"]["tenant-42"]["paused"] is True
    operations.resume("tenant-42")
    call_command("jobs", "delete", handle.id, stdout=StringIO())
    assert get_store().find(["tenant-42"], handle.id) is None


def test_a_queue_whose_name_the_store_has_lost_is_named_again(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or no worker would ever find the jobs of a process that goes on."""
    store: Any = get_store()
    receipt.using(queue="tenant-42").enqueue(7)
    store.transport.command("DEL", store.keys.fleet("queues"))
    store._registered = {queue: at - 61 for queue, at in store._registered.items()}
    receipt.using(queue="tenant-42").enqueue(8)
    assert "tenant-42" in store.queues()


# -- workers ----------------------------------------------------------------------


class Known:
    """The names in the store."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)

    def queues(self) -> list[str]:
        return self.names


CHOICES = {
    "all": (None, [], ["default", "tenant-7", "tenant-1", "tenant-vip-1"]),
    "a pattern": (["tenant-*"], [], ["tenant-7", "tenant-1", "tenant-vip-1"]),
    "a narrower one": (["tenant-vip-*", "default"], [], ["default", "tenant-vip-1"]),
    "a wider one": (["ten*"], [], ["tenant-7", "tenant-1", "tenant-vip-1"]),
    "one that is a name": (["tenant-5"], [], ["tenant-5"]),
    "all but some": (None, ["tenant-vip-*", "tenant-7"], ["default", "tenant-1"]),
    "all but those of patterns": (None, ["tenant-*"], ["default"]),
}


@pytest.mark.parametrize("case", CHOICES)
def test_a_worker_serves_what_its_options_stand_for(case: str) -> None:
    wanted, excluded, expected = CHOICES[case]
    served = _choose(get_settings().queues, wanted, excluded)
    served.look(Known("tenant-1", "tenant-vip-1", "other", "default"))
    assert list(served.names) == expected
    assert [each.max_concurrency for each in served] == [
        5 if each.name in ("tenant-1", "tenant-5") else 0 for each in served
    ]


def test_a_worker_says_when_there_are_more_queues_than_it_can_serve(caplog: pytest.LogCaptureFixture) -> None:
    served = ServedQueues([QueueSettings("default")], ["*"])
    store = Known("default", *(f"t{number}" for number in range(MOST_FOUND)))
    assert served.look(store)
    assert len(served) == served.most == MOST_FOUND + 1
    assert served.open_patterns == ("*",)
    store.names += ["more", "still-more"]
    for _ in range(2):
        assert not served.look(store)
    assert (len(served), served.open_patterns) == (MOST_FOUND + 1, ())
    assert [record.getMessage() for record in caplog.records] == [
        "There are more queues than this worker can serve (1001): it leaves 2 of them to other workers, as well as all "
        "that are new. Start workers with --queues, each for a part of them."
    ]


def test_a_new_queue_has_a_worker_before_that_worker_reports_it() -> None:
    about = {"queues": ["default"], "patterns": ["tenant-*"], "excluded": ["tenant-9*"], "state": "running"}
    workers = [WorkerInfo("w", 0, about)]
    assert [unserved(queue, workers)[0] for queue in ("tenant-1", "tenant-91", "x")] == [
        "",
        *["no_worker_takes_queue"] * 2,
    ]
    assert browse.shown_queues({**about, "queues": ["default", "tenant-1", "tenant-2"]}) == ["default", "tenant-*"]
