"""Everyone who reads the store: each page, each GET of the API, each command that shows something, and the work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from typing import Any

from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from django_jobs import browse
from django_jobs.core.values import Lane, State
from django_jobs.execution.executor import Executor
from django_jobs.execution.remote_reports import RemoteWatch
from django_jobs.models import ApiToken
from django_jobs.operations import bulk, searching
from django_jobs.samples.log import COARSE, FINE
from django_jobs.schedules.scheduler import Periodic
from django_jobs.stores.redis import Store
from django_jobs.worker.maintenance.agenda import workflows
from django_jobs.worker.maintenance.archiver import Archiver
from django_jobs.worker.maintenance.tasks import MaintenanceTasks
from tests.integration.console.conftest import BASE
from tests.integration.odd.scene import QUEUES

PAGES = (
    "", "?period=day", "?period=week", "queues/", "queues/default/", "queues/pull/", "search/?q=odd", "workers/",
    "types/tests.greet/", "types/tests.greet/?period=week", "store/", "schedules/", "bulk/", "history/", "workflows/",
    *(f"jobs/{state}/" for state in State), "jobs/dead/?group=1", "jobs/retry/?group=1",
    "jobs/dead/?q=a&name=tests.greet&queue=default&error=z", "jobs/dead/?tag=red",
)  # fmt: skip
CALLS = (
    "queues", "stats", "alarms", "findings", "job-types", "workers", "schedules", "workflows", "trend", "tags",
    "archived-jobs", "outbox", "queues/default/trend", "queues/default/trend?period=week",
    "job-types/tests.greet/trend", "job-types/php.resize", *(f"jobs?state={state}" for state in State),
)  # fmt: skip
COMMANDS = (
    ("stats",), ("doctor",), ("alarms",), ("findings",), ("health",), ("workers",), ("schedules",), ("workflows",),
    ("tags",), ("history",), ("archived",), ("outbox",), *(("list", state.value) for state in State),
)  # fmt: skip

Reader = tuple[str, Callable[[], object]]


class Answered(AssertionError):
    """An answer that no user should get."""


class Readers:
    """Yields what to do, with a name, so that a test can say who failed."""

    def __init__(self, store: Store, ids: dict[str, list[str]], flows: list[str]) -> None:
        self.store, self.ids, self.flows = store, ids, flows
        self.person, self.caller = Client(), Client()
        self.person.force_login(User.objects.create_superuser("root"))
        _, secret = ApiToken.objects.issue("all", ("enqueue", "read", "manage", "work"))
        self.headers = {"Authorization": f"Bearer {secret}"}

    def looking(self, only: set[str], forms: bool = True) -> Iterator[Reader]:
        """Pages, GETs and commands; of jobs, those with the ids in `only`."""
        for page in PAGES:
            yield f"page {page}", lambda page=page: self._page(page)  # type: ignore[misc]
        for call in CALLS:
            yield f"GET v1/{call}", lambda call=call: self._call(f"v1/{call}")  # type: ignore[misc]
        for call in ("metrics", "healthz"):
            yield f"GET {call}", lambda call=call: self._call(call)  # type: ignore[misc]
        for command in COMMANDS:
            yield f"jobs {' '.join(command)}", lambda command=command: self._command(*command)  # type: ignore[misc]
            if command[0] in ("stats", "workers", "schedules", "workflows", "doctor"):
                yield f"jobs {command[0]} --json", lambda c=command: self._command(*c, "--json")  # type: ignore[misc]
        for worker in ("web-1:4711", "odd:1"):
            yield f"worker {worker}", lambda w=worker: self._page(f"workers/{quote(w)}/")  # type: ignore[misc]
            yield f"GET worker {worker}", lambda w=worker: self._call(f"v1/workers/{w}/trend")  # type: ignore[misc]
        for operation in self._operations():
            yield f"bulk {operation}", lambda o=operation: self._page(f"bulk/{quote(o)}/")  # type: ignore[misc]
        for flow in self.flows:
            yield f"workflow {flow}", lambda f=flow: self._page(f"workflows/{f}/")  # type: ignore[misc]
            yield f"GET workflow {flow}", lambda f=flow: self._call(f"v1/workflows/{f}")  # type: ignore[misc]
            yield f"GET steps {flow}", lambda f=flow: self._call(f"v1/workflows/{f}/steps")  # type: ignore[misc]
            yield f"jobs workflow {flow}", lambda f=flow: self._command("workflow", f)  # type: ignore[misc]
        for queue, ids in self.ids.items():
            for id in ids:
                if id in only:
                    yield from self._job(queue, id, forms)

    def _operations(self) -> list[str]:
        return [key for key in self.store.get_document("bulk") if "/" not in key]

    def _job(self, queue: str, id: str, forms: bool) -> Iterator[Reader]:
        for tail in ("", "edit/", "another/") if forms else ("",):
            page = f"job/{queue}/{quote(id)}/{tail}"
            yield f"page {page}", lambda page=page: self._page(page)  # type: ignore[misc]
        yield "GET job", lambda: self._call(f"v1/jobs/{id}")
        yield "GET why", lambda: self._call(f"v1/jobs/tests.greet/{id}/why")
        yield "jobs show", lambda: self._command("show", id)
        yield "jobs show --json", lambda: self._command("show", id, "--json")
        yield "jobs why", lambda: self._command("why", id)

    def working(self) -> Iterator[Reader]:
        """What workers and their maintenance do."""
        store = self.store
        tasks = MaintenanceTasks(store, QUEUES, 10_000)
        for queue in QUEUES:
            yield f"promote {queue}", lambda q=queue: store.promote(q)  # type: ignore[misc]
            yield f"recover {queue}", lambda q=queue: tasks._recover(q, 1.0)  # type: ignore[misc]
            yield f"overdue {queue}", lambda q=queue: store.overdue(q)  # type: ignore[misc]
            yield f"expire {queue}", lambda q=queue: tasks._expire(q)  # type: ignore[misc]
            yield f"prune {queue}", lambda q=queue: tasks._prune(q)  # type: ignore[misc]
            yield f"drop minutes {queue}", lambda q=queue: store._drop_old_minutes(q)  # type: ignore[misc]
            yield f"drop answers {queue}", lambda q=queue: store._drop_old_answers(q)  # type: ignore[misc]
            yield f"reconcile {queue}", lambda q=queue: tasks._reconcile(q)  # type: ignore[misc]
            yield f"check {queue}", lambda q=queue: store.check_turn(q, "odd", 1_000)  # type: ignore[misc]
            yield f"faults {queue}", lambda q=queue: store.faults(q)  # type: ignore[misc]
            yield f"renew {queue}", lambda q=queue: store.extend(q, ["web-1:4711/1", "w"], 1_000)  # type: ignore[misc]
            yield f"holdings {queue}", lambda q=queue: store.holdings(q, "web-1:4711/1")  # type: ignore[misc]
            yield f"last arrival {queue}", lambda q=queue: store.waiting(q, store.last_arrival(q))  # type: ignore[misc]
            yield f"parked {queue}", lambda q=queue: store.parked(q)  # type: ignore[misc]
        yield "upkeep", lambda: store.upkeep_due(QUEUES)
        yield "sample", lambda: store.sample(QUEUES)
        for width in (FINE, COARSE):
            yield f"samples {width}", lambda w=width: store.samples(QUEUES, w, types=True)  # type: ignore[misc]
        yield "times", lambda: store.times(QUEUES)
        yield "identities", store.forget_identities
        yield "snapshot", browse.publish_snapshot
        yield "bulk", lambda: bulk.tick(0.0)
        yield "searches", lambda: searching.tick()
        yield "schedules", lambda: Periodic().tick()
        yield "workflows", lambda: workflows(store, QUEUES)
        yield "remote", lambda: RemoteWatch(store, lambda: QUEUES).tick()
        yield "archiver", lambda: Archiver(store, lambda: QUEUES).tick()
        yield "publish worker", lambda: store.publish_worker("web-1:4711", {"incarnation": "a"}, 60_000)
        yield "command worker", lambda: store.command_worker("web-1:4711", "quiet")
        yield "outlook", lambda: store.outlook(QUEUES)
        yield "work", self.work
        yield "HTTP work", self._work_over_http

    def work(self) -> None:
        """Run what is queued, as a worker does."""
        executor = Executor(close_connections=False, clock=self.store.now)
        for lane in Lane:
            for _ in range(30):
                claims = self.store.claim("default", "w", 20, lane=lane, lease=60_000).claims
                if not claims:
                    break
                for claim in claims:
                    executor.run(claim, self.store)

    def _work_over_http(self) -> None:
        for _ in range(30):
            answer = self.caller.post(
                "/jobs/v1/queues/pull/claim", {"limit": 10}, "application/json", headers=self.headers
            )
            self._check(answer, "claim")
            jobs = answer.json()["jobs"]
            if not jobs:
                return
            for job in jobs:
                body = {"status": "succeeded", "token": job["token"]}
                address = f"/jobs/v1/jobs/{job['name']}/{quote(job['id'])}"
                self._check(self.caller.post(address, body, "application/json", headers=self.headers), "report")

    def _page(self, page: str) -> None:
        self._check(self.person.get(BASE + page), page)

    def _call(self, call: str) -> None:
        self._check(self.caller.get(f"/jobs/{call}", headers=self.headers), call)

    @staticmethod
    def _check(answer: Any, what: str) -> None:
        if answer.status_code >= 500:
            raise Answered(f"{what} answers {answer.status_code}: {answer.content[:300]!r}")

    @staticmethod
    def _command(*words: str) -> None:
        with suppress(CommandError, SystemExit):
            call_command("jobs", *words, stdout=StringIO(), stderr=StringIO())
