"""Why does this job not start?  Each cause brought about, and the same answer wherever it is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client, override_settings

from django_jobs import __version__, browse
from django_jobs.browse.reasons import SENTENCES, Reason
from django_jobs.conf import QueueSettings
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import Attempt, Completed, Controls, Lane, NewJob, State
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.parent.status import WorkerStatus
from tests.conftest import Clock
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, worker_info

LEASE = 30_000
QUEUES = {"default": {}, "other": {"PRIORITY": 9}}
LIMITED = Controls(limit_key="shop.send_receipt:7", limit=1)


@dataclass
class Scene:
    """A store, one job that is asked about, and what it takes to keep it from starting."""

    store: Store
    clock: Clock
    filler: Filler
    #: settings in force while it is asked.
    settings: dict[str, Any] = field(default_factory=dict)

    def worker(self, name: str = "web-1:1", **more: Any) -> None:
        self.store.publish_worker(name, worker_info(knows="new", version="0.1.0", **more), 600_000)

    def job(self, **given: Any) -> str:
        return self.filler.add(**{"id": "it", **given})

    def claim(self, limit: int = 1, worker: str = "w", **more: Any) -> Any:
        return self.store.claim("default", worker, limit, lease=LEASE, **more).claims

    def reason(self, id: str = "it") -> Reason:
        with override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": QUEUES, **self.settings}):
            use_store(self.store)
            info = self.store.get("default", id)
            assert info is not None
            reason = browse.why(info)[1]
        use_store(self.store)  # the end of other settings closes the store in use
        return reason


@pytest.fixture
def scene(console_store: Store, clock: Clock) -> Iterator[Scene]:
    """The type of its jobs has a limit of one."""
    known = registry.find("shop.send_receipt")
    registry.unregister("shop.send_receipt")
    registry.register(JobDefinition(lambda order: None, name="shop.send_receipt", max_concurrency=1))
    yield Scene(console_store, clock, Filler(console_store))
    registry.unregister("shop.send_receipt")
    if known is not None:
        registry.register(known)


def scheduled(scene: Scene) -> dict[str, Any]:
    scene.job(run_in=60_000)
    return {"until": scene.clock.now + 60_000}


def retry(scene: Scene) -> dict[str, Any]:
    scene.worker()
    scene.job()
    scene.store.retry(scene.claim()[0], Attempt(1, "failed", 0), 5_000)
    return {"until": scene.clock.now + 5_000}


def queue_paused(scene: Scene) -> dict[str, Any]:
    scene.worker()
    scene.job()
    now = scene.clock.now
    scene.store.pause("default", reason="moving house", until=now + 60_000, by="anna")
    return {"since": now, "until": now + 60_000, "link": ("queue", "default"), "says": ["anna", "moving house"]}


def all_paused(scene: Scene) -> dict[str, Any]:
    scene.worker()
    scene.job()
    for queue in QUEUES:
        scene.store.pause(queue, by="anna")
    return {"since": scene.clock.now, "link": ("queues",), "says": ["anna"]}


def type_paused(scene: Scene) -> dict[str, Any]:
    scene.worker()
    scene.job()
    scene.store.pause("default", name="shop.send_receipt", reason="broken", by="bob")
    return {"says": ["bob", "broken", "shop.send_receipt"]}


def type_paused_and_met(scene: Scene) -> dict[str, Any]:
    said = type_paused(scene)
    assert scene.claim() == []
    assert scene.store.get("default", "it").state is State.BLOCKED  # type: ignore[union-attr]
    return said


def killed_not_ended(scene: Scene) -> dict[str, Any]:
    scene.worker()
    scene.job()
    assert scene.claim(worker="web-1:1/1")
    assert scene.store.kill("default", ["it"], "hangs") == ["it"]
    return {"says": ["web-1:1/1"]}


def stop_not_ended(scene: Scene) -> dict[str, Any]:
    scene.worker()
    scene.job()
    assert scene.claim(worker="web-1:1/1")
    assert scene.store.kill("default", ["it"], "hangs") == ["it"]
    assert scene.store.revive("default", ["it"]) == ["it"]
    return {"says": ["web-1:1/1"]}


def limit(scene: Scene) -> dict[str, Any]:
    scene.worker()
    scene.filler.add(id="holder", controls=LIMITED)
    assert scene.claim()
    scene.job(controls=LIMITED)
    return {"link": ("job", "default", "holder"), "says": ["holder", "shop.send_receipt:7"]}


def limit_and_met(scene: Scene) -> dict[str, Any]:
    said = limit(scene)
    assert scene.claim() == []
    assert scene.store.get("default", "it").state is State.BLOCKED  # type: ignore[union-attr]
    return said


def limit_turn(scene: Scene) -> dict[str, Any]:
    scene.worker()
    scene.filler.add(id="holder", controls=LIMITED)
    (holder,) = scene.claim()
    scene.filler.add(controls=LIMITED)
    scene.job(controls=LIMITED)
    assert scene.claim(2) == []
    scene.store.complete("default", [Completed(holder, b"", 1, "shop.send_receipt", LIMITED)])
    return {"says": ["shop.send_receipt:7"]}


def no_workers(scene: Scene) -> dict[str, Any]:
    scene.job()
    return {"since": scene.clock.now}


def no_worker_takes_queue(scene: Scene) -> dict[str, Any]:
    scene.worker(queues=["other"])
    scene.job()
    return {"says": ["web-1:1 (0.1.0)"]}


def workers_quiet(scene: Scene) -> dict[str, Any]:
    scene.worker(state="quiet")
    scene.worker("web-2:1", state="stopping")
    scene.job()
    return {"says": ["web-1:1", "web-2:1"]}


def queue_left_out(scene: Scene) -> dict[str, Any]:
    scene.worker(closed=1, closed_queues=["default"])
    scene.job()
    return {}


def unknown_name(scene: Scene) -> dict[str, Any]:
    scene.worker()
    scene.job()
    (claimed,) = scene.claim(knows="new")
    assert scene.store.park(claimed, "new") is State.BLOCKED
    return {"since": scene.clock.now, "says": ["shop.send_receipt", "web-1:1 (0.1.0)"]}


def unknown_format(scene: Scene) -> dict[str, Any]:
    scene.worker()
    scene.store.enqueue("default", [NewJob("it", b"-\nshop.send_receipt\t7\n\n\n1\n\n[[], {}]")])
    (claimed,) = scene.claim(knows="new")
    assert scene.store.park(claimed, "new") is State.BLOCKED
    return {"says": ["format 7"]}


def queue_limit(scene: Scene) -> dict[str, Any]:
    scene.worker()
    scene.settings = {"QUEUES": {"default": {"MAX_CONCURRENCY": 1}}}
    scene.filler.add()
    assert scene.claim(max_running=1)
    scene.job()
    return {"says": ["1 may run"]}


def higher_queue(scene: Scene) -> dict[str, Any]:
    scene.worker(queues=["default", "other"])
    scene.settings = {"QUEUE_ORDER": "strict"}
    scene.filler.add(queue="other")
    scene.job()
    return {"link": ("queue", "other")}


def suspect(scene: Scene) -> dict[str, Any]:
    scene.job()
    assert scene.claim(worker="gone")
    scene.clock.advance(LEASE + 1)
    scene.store.recover("default")
    scene.worker()
    return {"since": scene.clock.now}


def higher_priority(scene: Scene) -> dict[str, Any]:
    scene.worker()
    scene.job()
    scene.filler.add(controls=Controls(priority=1))
    return {"says": ["1, of which 1"]}


def behind(scene: Scene) -> dict[str, Any]:
    scene.worker()
    scene.filler.add()
    scene.filler.add()
    scene.job()
    return {"says": ["queue: 2."]}


def let_in(scene: Scene) -> dict[str, Any]:
    said = type_paused_and_met(scene)
    assert said
    scene.store.pause("default", name="shop.send_receipt", until=scene.clock.now + 1)
    scene.clock.advance(1)
    return {}


def due(scene: Scene) -> dict[str, Any]:
    scene.worker()
    scene.job(run_in=1_000)
    scene.clock.advance(1_000)
    return {"since": scene.clock.now}


def next_(scene: Scene) -> dict[str, Any]:
    scene.worker()
    scene.filler.add()
    scene.claim()
    scene.job()
    return {"since": scene.clock.now, "says": ["queue: 1."]}


def alone(scene: Scene) -> dict[str, Any]:
    scene.worker()
    for id in ("first", "it"):
        scene.filler.add(id=id, controls=Controls(alone=True))
    return {"says": ["queue: 1."]}


def running(scene: Scene) -> dict[str, Any]:
    scene.job()
    scene.claim(worker="web-1:1/1")
    return {"since": scene.clock.now, "says": ["web-1:1/1"]}


def lease_ended(scene: Scene) -> dict[str, Any]:
    scene.job()
    scene.claim(worker="web-1:1/1")
    return {"since": scene.clock.advance(LEASE), "says": ["web-1:1/1"]}


def running_remotely(scene: Scene) -> dict[str, Any]:
    scene.job()
    scene.claim(worker="remote", lease_each=True)
    return {}


def running_remotely_by(scene: Scene) -> dict[str, Any]:
    scene.job()
    scene.claim(worker="remote:@web-1.7", lease_each=True)
    return {"since": scene.clock.now, "says": ["web-1.7"]}


def succeeded(scene: Scene) -> dict[str, Any]:
    scene.job()
    scene.store.complete("default", [Completed(scene.claim()[0], b"1")])
    return {"since": scene.clock.now}


def dead(scene: Scene) -> dict[str, Any]:
    scene.job()
    scene.store.bury(scene.claim()[0], Attempt(1, "failed", 0))
    return {"since": scene.clock.now}


def cancelled(scene: Scene) -> dict[str, Any]:
    scene.job()
    scene.store.cancel("default", ["it"])
    return {"since": scene.clock.now}


def expired(scene: Scene) -> dict[str, Any]:
    scene.job(controls=Controls(expires_at=scene.clock.now + 1))
    scene.clock.advance(5)
    assert scene.claim() == []
    return {"since": scene.clock.now}


CASES: dict[str, tuple[str, Callable[[Scene], dict[str, Any]]]] = {
    make.__name__.rstrip("_"): (cause or make.__name__.rstrip("_"), make)
    for make, cause in (
        (scheduled, ""), (retry, ""), (queue_paused, ""), (all_paused, ""), (type_paused, ""),
        (type_paused_and_met, "type_paused"), (killed_not_ended, ""), (stop_not_ended, ""),
        (limit, ""), (limit_and_met, "limit"),
        (limit_turn, ""), (no_workers, ""), (no_worker_takes_queue, ""), (workers_quiet, ""),
        (queue_left_out, ""), (unknown_name, ""),
        (unknown_format, ""), (queue_limit, ""), (higher_queue, ""), (suspect, ""), (higher_priority, ""),
        (behind, ""), (let_in, ""), (due, ""), (next_, ""), (alone, "behind"), (running, ""), (lease_ended, ""),
        (running_remotely, ""), (running_remotely_by, ""), (succeeded, ""), (dead, ""), (cancelled, ""), (expired, ""),
    )
}  # fmt: skip
#: Shown by tests of their own: they need the API, or a server of their own.
ELSEWHERE = {"not_fetched", "fetched", "store_read_only"}


@pytest.mark.parametrize("case", CASES)
def test_each_cause_has_its_sentence(scene: Scene, case: str) -> None:
    cause, make = CASES[case]
    expected = make(scene)
    reason = scene.reason()
    assert reason.cause == cause
    text = reason.text(str)
    assert "%(" not in text
    for words in expected.pop("says", []):
        assert words in text, text
    for key, value in expected.items():
        assert getattr(reason, key) == value, key


def test_every_cause_is_brought_about() -> None:
    assert {cause for cause, _ in CASES.values()} | ELSEWHERE == set(SENTENCES)


def test_a_worker_that_knows_the_job_takes_it_back(scene: Scene) -> None:
    unknown_name(scene)
    scene.store.publish_worker("new:1", worker_info(knows="newer"), 60_000)
    assert scene.reason().cause == "let_in"
    assert [each.id for each in scene.claim(knows="newer")] == ["it"]


def test_a_job_that_needs_a_process_of_its_own_does_not_wait_for_the_others(scene: Scene) -> None:
    scene.worker()
    scene.filler.add()
    scene.job(controls=Controls(alone=True))
    assert scene.reason().cause == "next"
    assert [each.id for each in scene.claim(lane=Lane.ALONE)] == ["it"]


def test_a_job_that_cannot_be_read_has_an_answer(scene: Scene) -> None:
    scene.worker()
    scene.job(record=b"\xff\xfe nonsense")
    assert scene.reason().cause == "next"


# -- where it is asked -----------------------------------------------------------


@pytest.mark.django_db
def test_page_command_and_function_say_the_same(scene: Scene, root: Client) -> None:
    queue_paused(scene)
    scene.store.pause("default", reason="moving house", by="anna")
    page = root.get(f"{BASE}job/default/it/").text
    said = "Queue default is paused (by anna, until it is resumed: moving house)."
    assert said in page
    assert f'href="{BASE}queues/default/"' in page
    out = StringIO()
    call_command("jobs", "why", "it", "--json", stdout=out)
    answer = json.loads(out.getvalue())
    assert (answer["cause"], answer["reason"]) == ("queue_paused", said)
    assert answer["about"] == {"kind": "queue", "name": "default"}
    assert answer["since"].startswith("2027-")
    out = StringIO()
    call_command("jobs", "why", "it", stdout=out)
    assert said in out.getvalue()


@pytest.mark.django_db
@override_settings(LANGUAGE_CODE="de")
def test_the_page_says_it_in_german_and_programs_are_told_in_english(scene: Scene, root: Client) -> None:
    no_worker_takes_queue(scene)
    assert "Kein Worker nimmt Jobs aus der Warteschlange default" in root.get(f"{BASE}job/default/it/").text
    out = StringIO()
    call_command("jobs", "why", "it", "--json", stdout=out)
    assert json.loads(out.getvalue())["reason"].startswith("No worker takes queue default.")


@pytest.mark.django_db
def test_the_console_notes_who_pauses(scene: Scene, root: Client) -> None:
    scene.worker()
    scene.job()
    root.post(f"{BASE}queues/default/", {"do": "pause", "reason": "tests"})
    assert "by root" in scene.reason().text(str)
    call_command("jobs", "pause", "default", stdout=StringIO())
    assert "(shell)" in scene.reason().text(str)


# -- what only a real server, or a real file, does ---------------------------------


@pytest.mark.redis
def test_a_server_that_refuses_writes(redis_store: Store, clock: Clock) -> None:
    use_store(redis_store)
    scene = Scene(redis_store, clock, Filler(redis_store))
    scene.worker()
    scene.job()
    redis_store.transport.command("CONFIG", "SET", "min-replicas-to-write", 1)
    try:
        reason = scene.reason()
    finally:
        redis_store.transport.command("CONFIG", "SET", "min-replicas-to-write", 0)
    assert reason.cause == "store_read_only"
    assert "NOREPLICAS" in reason.text(str)
    assert scene.reason().cause == "next"


def test_a_parent_publishes_which_queues_it_has_left_out() -> None:
    class Children(list[Any]):
        closed = frozenset({"b", "a"})

        def ping(self) -> None:
            """Asks nobody."""

    children: Any = Children()
    config = WorkerConfig(queues=tuple(map(QueueSettings, "abc")))
    described = WorkerStatus(config, "w", children).describe()
    assert (described["closed"], described["closed_queues"], described["version"]) == (2, ["a", "b"], __version__)
