"""Every call of the API, sent again: one after the other, and at the same moment.  It has the effect of one call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from django_jobs import chain, outbox
from django_jobs.api.urls import api as the_api
from django_jobs.core.values import Attempt, State
from django_jobs.models import AuditEntry
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.workflows import engine
from tests.integration.api import work
from tests.integration.api.conftest import SETTINGS, together

CALLS = sorted(
    f"{method.upper()} {path[1:]}"
    for path, methods in the_api.get_openapi_schema(path_prefix="/")["paths"].items()
    for method in methods
)
Ask = Callable[..., tuple[int, Any]]


@dataclass
class World:
    """A store with the jobs that a call needs."""

    ask: Ask
    store: Store
    workflow_id: str = ""
    entry_id: int = 0

    def greet(self) -> None:
        self.ask("PUT", "v1/jobs/tests.greet/1", {"data": ["Ada"]})

    def remote(self) -> None:
        self.ask("POST", "v1/job-types", {"name": "php.resize", "queue": "pull", "attempts": 3})
        self.ask("PUT", "v1/jobs/php.resize/1")

    def claimed(self) -> dict[str, Any]:
        self.remote()
        _, answer = self.ask("POST", "v1/queues/pull/claim", {})
        return {"token": answer["jobs"][0]["token"]}

    def two_claimed(self) -> dict[str, Any]:
        token = self.claimed()["token"]
        self.ask("PUT", "v1/jobs/php.resize/2")
        _, answer = self.ask("POST", "v1/queues/pull/claim", {})
        failed = {"name": "php.resize", "id": "1", "token": token, "status": "failed"}
        succeeded = {"name": "php.resize", "id": "2", "token": answer["jobs"][0]["token"], "status": "succeeded"}
        return {"reports": [failed, succeeded]}

    def one_to_extend(self) -> dict[str, Any]:
        return {"extensions": [{"name": "php.resize", "id": "1", "progress": 0.5, **self.claimed()}]}

    def dead(self) -> None:
        self.greet()
        (held,) = self.store.claim("default", "w", 1, lease=60_000).claims
        self.store.bury(held, Attempt(1, "failed", 0, error="no"))

    def previewed(self) -> dict[str, Any]:
        self.greet()
        wanted = {"verb": "cancel", "query": "state:queued"}
        _, shown = self.ask("GET", "v1/bulk-operations/preview?verb=cancel&query=state:queued")
        return wanted | {key: shown[key] for key in ("matching", "preview")}

    def done_in_bulk(self) -> None:
        self.ask("PUT", "v1/bulk-operations/1", self.previewed())

    def worker(self) -> None:
        self.store.publish_worker("w1", {}, 60_000)

    def paused(self) -> None:
        self.store.pause("default")

    def workflow(self) -> None:
        self.workflow_id = chain(work.greet.s("Ada"), work.greet.s("Bob")).enqueue(on_commit=False).id

    def stopped_workflow(self) -> None:
        self.workflow()
        (held,) = self.store.claim("default", "w", 1, lease=60_000).claims
        self.store.bury(held, Attempt(1, "failed", 0, error="no"))
        engine.advance(self.store, "default")

    def kept(self) -> None:
        outbox.write([outbox.Entry(outbox.EntryKind.WORKFLOW, "w1", "flow", at=self.store.now())], "default")
        outbox.rows("default").update(is_held=True, fresh_at=timezone.now())
        self.entry_id = outbox.rows("default").get().pk

    def seen(self) -> dict[str, int]:
        """What there is, without zeros: jobs by state, and all that ever happened."""
        found: Counter[str] = Counter()
        for stats in self.store.stats(["default", "pull"]):
            found.update(stats.counts)
            found.update({f"ever {event}": n for event, n in stats.totals.items() if ":" not in event})
            found["paused"] += stats.paused is not None
        found["types"] = sum(kind["remote"] for kind in self.ask("GET", "v1/job-types")[1])
        found["schedules paused"] = sum(
            each["state"] == "paused" for each in self.ask("GET", "v1/schedules")[1]["schedules"]
        )
        found.update(f"workflow {each['state']}" for each in self.ask("GET", "v1/workflows")[1]["workflows"])
        return {name: n for name, n in found.items() if n}


@dataclass
class Row:
    """One call, what it needs, and what there is after it."""

    #: WORKFLOW stands for the id of the workflow, ENTRY for that of the entry in the outbox.
    path: str
    after: dict[str, int] = field(default_factory=dict)
    body: Any = None
    needs: Callable[[World], dict[str, Any] | None] = lambda world: None
    headers: dict[str, str] = field(default_factory=dict)
    #: makes something: 201 the first time, 200 after that.
    makes: bool = False
    #: makes or removes it in Django's database.
    makes_a_row: bool = False
    #: parts of the answer that may differ: times of the answer itself, and what the first answer does not know yet.
    differs: frozenset[str] = frozenset()


JOB = "v1/jobs/tests.greet/1"
CHANGED = frozenset({"changed_at"})
TIMES = frozenset({"enqueued_at", "ready_at"})
QUEUED = {"queued": 1, "ever enqueued": 1}
CANCELLED = {"cancelled": 1, "ever cancelled": 1, "ever enqueued": 1}
DEAD = {"dead": 1, "ever dead": 1, "ever enqueued": 1, "ever failed": 1}
RUNNING = {"running": 1, "ever enqueued": 1, "types": 1}
FLOW = {"workflow running": 1, **QUEUED}
NIGHTLY = "v1/schedules/settings:nightly"

TABLE: dict[str, Row] = {
    "PUT v1/jobs/{name}/{id}": Row(JOB, QUEUED, {"data": ["Ada"]}, makes=True, differs=TIMES),
    "GET v1/jobs/{name}/{id}": Row(JOB, QUEUED, needs=World.greet),
    "GET v1/jobs/{id}": Row("v1/jobs/1", QUEUED, needs=World.greet),
    "GET v1/jobs": Row("v1/jobs?state=queued", QUEUED, needs=World.greet),
    "POST v1/jobs": Row(
        "v1/jobs",
        {"queued": 3, "ever enqueued": 3},
        {"jobs": [{"name": "tests.greet", "id": str(id), "data": ["Ada"]} for id in (1, 2, 3)]},
        # Which of the calls adds a job is not known: an item is answered as its PUT is.
        differs=frozenset({"jobs"}),
    ),
    "POST v1/extensions": Row("v1/extensions", RUNNING, needs=World.one_to_extend),
    "POST v1/reports": Row(
        "v1/reports",
        {"retry": 1, "succeeded": 1, "ever enqueued": 2, "types": 1}
        | {"ever failed": 1, "ever retried": 1, "ever succeeded": 1},
        needs=World.two_claimed,
    ),
    "GET v1/bulk-operations/preview": Row(
        "v1/bulk-operations/preview?verb=cancel&query=state:queued",
        QUEUED,
        needs=World.greet,
        differs=frozenset({"as_of", "preview"}),
    ),
    "PUT v1/bulk-operations/{id}": Row(
        "v1/bulk-operations/1",
        CANCELLED,
        needs=World.previewed,
        makes=True,
        # One call drives the operation; the others say how far it is.
        differs=frozenset({"finished_at", "moved", "percent"}),
    ),
    "GET v1/bulk-operations/{id}": Row("v1/bulk-operations/1", CANCELLED, needs=World.done_in_bulk),
    "DELETE v1/bulk-operations/{id}": Row("v1/bulk-operations/1", CANCELLED, needs=World.done_in_bulk),
    "PATCH v1/jobs/{name}/{id}": Row(JOB, QUEUED, {"data": ["Bob"]}, needs=World.greet),
    "DELETE v1/jobs/{name}/{id}": Row(JOB, CANCELLED, needs=World.greet),
    "POST v1/jobs/{name}/{id}": Row(
        "v1/jobs/php.resize/1",
        {"retry": 1, "ever failed": 1, "ever retried": 1, "ever enqueued": 1, "types": 1},
        {"status": "failed"},
        needs=World.claimed,
    ),
    "POST v1/jobs/{name}/{id}/retry": Row(f"{JOB}/retry", {**DEAD, "queued": 1, "dead": 0}, {}, needs=World.dead),
    "POST v1/jobs/{name}/{id}/kill": Row(
        f"{JOB}/kill", {"dead": 1, "ever dead": 1, "ever enqueued": 1}, {"reason": "no"}, needs=World.greet
    ),
    "POST v1/jobs/{name}/{id}/reschedule": Row(
        f"{JOB}/reschedule",
        {"scheduled": 1, "ever enqueued": 1},
        {"run_after": "2035-01-01T00:00:00Z"},
        needs=World.greet,
    ),
    "POST v1/jobs/{name}/{id}/delete": Row(f"{JOB}/delete", {"ever enqueued": 1}, needs=World.greet),
    "POST v1/jobs/{name}/{id}/replay": Row(
        f"{JOB}/replay",
        {**DEAD, "queued": 1, "ever enqueued": 2},
        {},
        needs=World.dead,
        headers={"Idempotency-Key": "again"},
        makes=True,
        differs=TIMES,
    ),
    "POST v1/jobs/{name}/{id}/extend": Row(
        "v1/jobs/php.resize/1/extend", RUNNING, {"progress": 0.5}, needs=World.claimed
    ),
    "GET v1/job-types": Row("v1/job-types", {"types": 1, "queued": 1, "ever enqueued": 1}, needs=World.remote),
    "GET v1/job-types/{name}": Row("v1/job-types/tests.greet"),
    "POST v1/job-types": Row(
        "v1/job-types", {"types": 1}, {"name": "php.new", "queue": "pull"}, makes=True, makes_a_row=True
    ),
    "PATCH v1/job-types/{name}": Row(
        "v1/job-types/php.resize", {"types": 1, "queued": 1, "ever enqueued": 1}, {"attempts": 7}, needs=World.remote
    ),
    "DELETE v1/job-types/{name}": Row(
        "v1/job-types/php.resize", {"queued": 1, "ever enqueued": 1}, needs=World.remote, makes_a_row=True
    ),
    "GET v1/paused": Row("v1/paused"),
    "GET v1/queues": Row("v1/queues"),
    "POST v1/queues/{name}/pause": Row("v1/queues/default/pause", {"paused": 1}, {"reason": "no"}),
    "POST v1/queues/{name}/resume": Row("v1/queues/default/resume", {}, {}, needs=World.paused),
    "POST v1/queues/{name}/claim": Row("v1/queues/pull/claim", RUNNING, {"request_id": "r1"}, needs=World.remote),
    "GET v1/schedules": Row("v1/schedules"),
    "PUT v1/schedules/{schedule}/runs/{id}": Row(f"{NIGHTLY}/runs/1", QUEUED, {}, makes=True),
    "POST v1/schedules/{schedule}/pause": Row(f"{NIGHTLY}/pause", {"schedules paused": 1}, {}),
    "POST v1/schedules/{schedule}/resume": Row(f"{NIGHTLY}/resume", {}, {}),
    "GET v1/workflows": Row("v1/workflows", FLOW, needs=World.workflow),
    "GET v1/workflows/{id}": Row("v1/workflows/WORKFLOW", FLOW, needs=World.workflow),
    "GET v1/workflows/{id}/steps": Row("v1/workflows/WORKFLOW/steps", FLOW, needs=World.workflow),
    "POST v1/workflows/{id}/cancel": Row(
        "v1/workflows/WORKFLOW/cancel",
        {"workflow cancelled": 1, "cancelled": 1, "ever cancelled": 1, "ever enqueued": 1},
        {},
        needs=World.workflow,
        # A call at the same moment sees that it is cancelled, and its steps on their way.
        differs=(*CHANGED, "ended_at", "counts", "progress", "stopped_by"),
    ),
    "POST v1/workflows/{id}/retry": Row(
        "v1/workflows/WORKFLOW/retry",
        {**DEAD, "workflow running": 1, "queued": 1, "dead": 0},
        {},
        needs=World.stopped_workflow,
        differs=CHANGED,
    ),
    "GET v1/outbox": Row("v1/outbox", needs=World.kept),
    "POST v1/outbox/{id}/send": Row("v1/outbox/ENTRY/send", body={}, needs=World.kept, makes_a_row=True),
    "DELETE v1/outbox/{id}": Row("v1/outbox/ENTRY", needs=World.kept, makes_a_row=True),
    "GET v1/archived-jobs": Row("v1/archived-jobs"),
    "GET v1/stats": Row("v1/stats"),
    "GET v1/tags": Row("v1/tags"),
    "GET v1/workers": Row("v1/workers"),
    "GET v1/workers/{name}/trend": Row("v1/workers/w1/trend", needs=World.worker),
    "GET v1/jobs/{name}/{id}/why": Row(f"{JOB}/why", QUEUED, needs=World.greet),
    "GET v1/alarms": Row("v1/alarms"),
    "GET v1/errors": Row("v1/errors"),
    "GET v1/findings": Row("v1/findings"),
    "GET v1/queues/{name}/trend": Row("v1/queues/default/trend"),
    "GET v1/trend": Row("v1/trend"),
    "GET v1/job-types/{name}/trend": Row("v1/job-types/tests.greet/trend"),
    "GET healthz": Row("healthz"),
    "GET metrics": Row("metrics"),
}


@pytest.fixture
def world(ask: Ask, shared_store: Store, settings: Any) -> World:
    nightly = {"job": "tests.greet", "cron": "0 3 * * *", "args": ["Ada"]}
    settings.DJANGO_JOBS = {**SETTINGS, "SCHEDULES": {"nightly": nightly}}
    use_store(shared_store)
    return World(ask, shared_store)


def test_every_call_of_the_api_has_a_row() -> None:
    assert sorted(TABLE) == CALLS


def alike(answer: Any, row: Row) -> Any:
    return {k: v for k, v in answer.items() if k not in row.differs} if isinstance(answer, dict) else answer


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_is_sent_again_has_the_effect_of_one(world: World, call: str) -> None:
    """At the same moment, and once more after that."""
    row, method = TABLE[call], call.split()[0]
    # Threads share one connection to a database in memory: test_other_databases.py has the test.
    at_once = not row.makes_a_row or connection.vendor != "sqlite"
    more = row.needs(world) or {}

    def send(_: int) -> tuple[int, Any]:
        path = row.path.replace("WORKFLOW", world.workflow_id).replace("ENTRY", str(world.entry_id))
        return world.ask(method, path, {**(row.body or {}), **more}, **row.headers)

    answers = together(send) if at_once else [send(0)]
    noted = AuditEntry.objects.count()
    answers.append(send(1))
    assert AuditEntry.objects.count() == noted, "what changed nothing is no act"
    statuses = Counter(status for status, _ in answers)
    assert statuses == ({201: 1, 200: len(answers) - 1} if row.makes else {200: len(answers)}), answers
    if call != "GET metrics":
        first = alike(answers[0][1], row)
        assert all(alike(answer, row) == first for _, answer in answers)
    assert world.seen() == {name: n for name, n in row.after.items() if n}


def test_a_bulk_operation_that_is_sent_at_the_same_moment_is_in_the_audit_log_once(world: World) -> None:
    order = world.previewed()
    answers = together(lambda _: world.ask("PUT", "v1/bulk-operations/1", order))
    assert Counter(status for status, _ in answers) == {201: 1, 200: len(answers) - 1}
    ended = [entry.details for entry in AuditEntry.objects.filter(kind="bulk") if entry.details.get("ended")]
    assert [entry["moved"] for entry in ended] == [1]


# -- the rules for ids and repeated reports, one by one -------------------------------


def test_reports_that_differ_are_told_apart(world: World) -> None:
    token = world.claimed()["token"]
    ended = {"status": "succeeded", "attempt": 1, "token": token}
    assert world.ask("POST", "v1/jobs/php.resize/1", ended)[0] == 200
    for other in ({**ended, "token": token + 1}, {**ended, "status": "failed"}, {**ended, "result": 7}):
        status, problem = world.ask("POST", "v1/jobs/php.resize/1", other)
        assert (status, problem["type"]) == (409, "urn:problem-type:django-jobs:attempt-over")
    assert world.ask("POST", "v1/jobs/php.resize/1", ended)[0] == 200


def test_a_report_may_be_sent_again_when_its_job_has_left_the_history(world: World) -> None:
    ended = {"status": "succeeded", **world.claimed()}
    assert world.ask("POST", "v1/jobs/php.resize/1", ended)[0] == 200
    world.store.delete("pull", ["1"])
    status, job = world.ask("POST", "v1/jobs/php.resize/1", ended)
    assert (status, job["state"]) == (200, "succeeded")


def test_an_id_is_that_of_one_job_whatever_its_type_and_queue(world: World) -> None:
    world.greet()
    for name in ("tests.rename", "tests.swallow"):
        status, problem = world.ask("PUT", f"v1/jobs/{name}/1", {"data": ["Ada"]})
        assert (status, problem["type"]) == (409, "urn:problem-type:django-jobs:id-used")
        assert world.ask("GET", f"v1/jobs/{name}/1")[0] == 404


def test_a_replay_under_an_id_of_ours_is_one_job_also_when_it_has_left_the_history(world: World) -> None:
    world.dead()
    assert world.ask("POST", f"{JOB}/replay", {"id": "second"})[0] == 201
    world.store.cancel("default", ["second"])
    world.store.delete("default", ["second"])
    status, job = world.ask("POST", f"{JOB}/replay", {"id": "second"})
    assert (status, job["state"]) == (200, "cancelled")
    assert world.store.get("default", "second") is None
    status, problem = world.ask("POST", f"{JOB}/replay", {"id": "1"})
    assert (status, problem["type"]) == (409, "urn:problem-type:django-jobs:id-used")


def test_an_attempt_that_is_extended_while_it_is_found_overdue_goes_on(world: World) -> None:
    world.remote()
    (held,) = world.store.claim("pull", "remote", 1, lease=1, lease_each=True).claims
    late = held._replace(overdue=True)
    world.store.transfer(held, "remote:1", 60_000)
    assert world.store.retry(late, Attempt(1, "timeout", 0), 0) is None
    assert not world.store.bury(late, Attempt(1, "timeout", 0))
    assert world.store.release("pull", [late]) == ["1"]
    assert world.store.get("pull", "1").state is State.RUNNING  # type: ignore[union-attr]
