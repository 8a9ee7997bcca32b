"""Each kind of finding, produced on a store as workers and producers produce it, with the page that it leads to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from html import unescape
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils.translation import override

from django_jobs import Batch, schedules
from django_jobs.core.values import Completed, Controls, State
from django_jobs.operations import diagnosis
from django_jobs.schedules.entry import ScheduleEntry
from django_jobs.schedules.state import LastRun
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.contract.workflows.steps import act, run
from tests.integration.console.conftest import BASE
from tests.integration.console.workflows import flows
from tests.integration.sample_jobs import receipt
from tests.support import kept
from tests.support.console_data import Filler, worker_info

pytestmark = pytest.mark.django_db

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
NAME = "shop.send_receipt"


class Scene:
    """A store with a worker, and a clock that the scenario sets."""

    def __init__(self, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self.clock, self.monkeypatch, self.filler = store, clock, monkeypatch, Filler(store)

    def report_in(self, **more: Any) -> None:
        """The worker reports."""
        info = {"queues": ["default", "mail"], "children": [], "started_at": self.clock(), "at": self.clock(), **more}
        self.store.publish_worker("web-1:4711", worker_info(**info), 60_000)

    def go(self, ms: int) -> None:
        """Let time pass; the worker reports."""
        self.clock.advance(ms)
        self.report_in()

    def succeed(self, number: int, ms: int = 100) -> None:
        for _ in range(number):
            self.store.complete("default", [Completed(self.filler.run(self.filler.add()), b"null", ms, NAME)])

    def schedule(self) -> ScheduleEntry:
        """A schedule of every full hour, which a worker knows."""
        entry = ScheduleEntry("settings:hourly", NAME, "0 * * * *", args=[1], label="hourly")
        self.monkeypatch.setattr(schedules, "entries", lambda: [entry])
        schedules.state.begin(self.store, entry, self.clock())
        return entry

    def found(self, kind: str) -> list[diagnosis.Finding]:
        return [each for each in diagnosis.check().findings if each.kind == kind]


@pytest.fixture
def scene(safe_store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(safe_store, clock, monkeypatch)
    made.report_in()
    return made


def behind_a_limit(scene: Scene) -> str:
    for _ in range(4):
        scene.filler.add("tests.limited", controls=Controls(limit_key="customer-7", limit=1))
    (claim,) = scene.filler.claim(limit=4)
    scene.go(45 * SECOND)
    return f"3 jobs of default wait behind job {claim.id} (tests.limited), which has run for 45 s."


def in_a_queue(scene: Scene) -> str:
    for _ in range(4):
        scene.filler.add()
    scene.filler.claim()
    scene.go(45 * SECOND)
    return "No job of default has started for 45 s, and 3 wait"


def behind_a_pause(scene: Scene) -> str:
    scene.filler.add()
    scene.store.pause("default")
    scene.go(45 * SECOND)
    return "1 job of default waits, because default is paused."


def behind_a_paused_type(scene: Scene) -> str:
    scene.filler.add()
    scene.store.pause("default", name=NAME)
    scene.go(45 * SECOND)
    return "1 job of default waits, because shop.send_receipt is paused."


def hang(scene: Scene) -> str:
    """A worker starts what waits, and it hangs; usually it takes a tenth of a second."""
    (claim,) = scene.store.claim("default", "web-1:4711/1", 9, lease=600_000).claims
    jobs = [{"id": claim.id, "name": act.name, "queue": "default", "since": scene.clock()}]
    scene.clock.advance(MINUTE)
    scene.report_in(children=[{"jobs": jobs}])
    return str(claim.id)


def succeed_as_acts(scene: Scene) -> None:
    act.enqueue_many([(str(n),) for n in range(10)])
    for claim in scene.store.claim("default", "web-1:4711/1", 10, lease=60_000).claims:
        scene.store.complete("default", [Completed(claim, b"null", 100, act.name)])


def behind_a_step(scene: Scene) -> str:
    succeed_as_acts(scene)
    flows.order_waiting()
    return f"3 steps of workflow order 7 wait for job {hang(scene)} (tests.steps.act), which has run for 1 min 0 s."


def before_callbacks(scene: Scene) -> str:
    succeed_as_acts(scene)
    with Batch("import", on_success=act.s("after")):
        act.enqueue("a")
    return f"The callbacks of batch import wait for job {hang(scene)} (tests.steps.act), which has run for 1 min 0 s."


def beside_a_free_worker(scene: Scene) -> str:
    scene.filler.add()
    started = scene.clock()
    scene.go(MINUTE)
    scene.report_in(started_at=started)
    return "web-1:4711 is free and claims nothing, though a job of default has waited for 1 min 0 s."


def overdue(scene: Scene) -> str:
    scene.filler.make(State.SCHEDULED, run_in=SECOND)
    scene.go(62 * SECOND)
    return "1 job of default is overdue"


def silent(scene: Scene) -> str:
    scene.clock.advance(31 * SECOND)
    return "web-1:4711 has not reported for 31 s."


def long_silent(scene: Scene) -> str:
    scene.clock.advance(10 * MINUTE)
    scene.store.publish_worker("web-2:11", worker_info(host="web-2"), 60_000)
    return "web-1:4711 has not reported for 10 min 0 s."


def silent_child(scene: Scene) -> str:
    scene.report_in(problems=["web-1:4711/1 has not answered for 31 s."])
    return "web-1:4711: web-1:4711/1 has not answered for 31 s."


def overrun(scene: Scene) -> str:
    scene.succeed(10)
    scene.filler.make(State.RUNNING)
    jobs = [{"id": "x", "name": NAME, "queue": "default", "since": scene.clock()}]
    id = scene.store.page("default", State.RUNNING)[0].id
    scene.clock.advance(MINUTE)
    scene.report_in(children=[{"jobs": [{**jobs[0], "id": id}]}])
    return f"Job {id} ({NAME}) in default has run for 1 min 0 s; usually {NAME} takes at most 100 ms."


def schedule_missed(scene: Scene) -> str:
    scene.schedule()
    scene.go(HOUR + 30 * SECOND)
    return "Schedule hourly did not run at "


def schedule_skipped(scene: Scene) -> str:
    entry = scene.schedule()
    now = scene.clock() // HOUR * HOUR
    schedules.state.note_runs(scene.store, {entry.id: LastRun(now, "default")})
    schedules.state.pass_over(scene.store, entry, now + HOUR)
    scene.go(HOUR)
    return "Schedule hourly skipped its run at "


def retries(scene: Scene) -> str:
    for _ in range(10):
        scene.filler.make(State.RETRY)
    scene.go(11 * MINUTE)
    return "10 jobs named shop.send_receipt in default are tried again and again"


def failing(scene: Scene) -> str:
    scene.succeed(10)
    for _ in range(30):
        scene.filler.make(State.RETRY, error="The card was refused")
    return "30 of 40 attempts of shop.send_receipt in default failed in the last ten minutes; usual: not known yet."


def clocks(scene: Scene) -> str:
    scene.report_in(at=scene.clock() - 5 * SECOND)
    return "The clock of web-1:4711 differs from that of the store by 5.0 s."


def unknown(scene: Scene) -> str:
    scene.filler.add(name="brand.new")
    scene.report_in(knows="old")
    (claim,) = scene.store.claim("default", "web-1:4711/1", 1, lease=30_000, knows="old").claims
    scene.store.park(claim, "old")
    return "1 job named brand.new in default waits for a worker that knows it."


def stopped(scene: Scene) -> str:
    flows.order(scene.store, dead="packed")
    return "Workflow order 7 is stopped: 1 step ended without success."


def open_batch(scene: Scene) -> str:
    with suppress(ZeroDivisionError), Batch("import"):
        act.enqueue("a")
        raise ZeroDivisionError
    run(scene.store)
    scene.go(6 * MINUTE)
    return "Batch import was not closed, and nothing happens in it."


def forgotten_pause(scene: Scene) -> str:
    scene.store.pause("mail", reason="moving")
    scene.go(DAY)
    return "mail has been paused since "


def forgotten_type(scene: Scene) -> str:
    scene.store.pause("mail", name=NAME)
    scene.go(DAY)
    return "shop.send_receipt has been paused since "


def outbox(scene: Scene) -> str:
    kept.entry(receipt.enqueue(1), reason="unknown name")
    return "1 entry of the outbox is held"


def no_worker(scene: Scene) -> str:
    scene.filler.add(queue="photos")
    return "1 job of photos is waiting, and no worker serves this queue."


def server(scene: Scene) -> str:
    about = scene.store.describe()
    scene.monkeypatch.setattr(scene.store, "describe", lambda: {**about, "eviction_policy": "allkeys-lru"})
    return "Redis may delete jobs to make room"


SCENARIOS: list[tuple[str, Callable[[Scene], str]]] = [
    ("standstill", behind_a_limit), ("standstill", in_a_queue), ("standstill", behind_a_pause),
    ("standstill", behind_a_paused_type), ("standstill", behind_a_step), ("standstill", before_callbacks),
    ("standstill", beside_a_free_worker), ("standstill", overdue), ("silent_worker", silent),
    ("silent_worker", long_silent), ("silent_worker", silent_child), ("overrun", overrun),
    ("schedule_missed", schedule_missed), ("schedule_skipped", schedule_skipped), ("retries_stuck", retries),
    ("failing", failing), ("clocks", clocks), ("unknown_names", unknown), ("stopped_workflow", stopped),
    ("open_batch", open_batch), ("forgotten_pause", forgotten_pause), ("forgotten_pause", forgotten_type),
    ("outbox", outbox), ("no_worker", no_worker), ("store", server),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "make"), SCENARIOS, ids=[make.__name__ for _, make in SCENARIOS])
def test_each_trouble_is_found_and_leads_to_its_cause(
    scene: Scene, root: Client, settings: Any, kind: str, make: Callable[[Scene], str]
) -> None:
    own = {"OUTBOX": kind == "outbox", "ON_COMMIT": kind == "outbox", "QUEUES": {"default": {}, "mail": {}}}
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, **own}
    use_store(scene.store)
    assert diagnosis.check().as_json() == [], "nothing is wrong before"
    says = make(scene)
    (told,) = [each for each in diagnosis.check().as_json() if each["kind"] == kind]
    assert says in told["says"]
    assert told["subject"]
    page = root.get(told["link"], follow=True)
    assert page.status_code == 200
    assert 'class="jobs-empty"' not in page.text.partition('id="content"')[2]
    assert says.partition("; ")[0] in unescape(root.get("/admin/django_jobs/dashboard/").text).replace("\xa0", " ")


@pytest.mark.parametrize("make", [overrun, failing])
def test_a_finding_is_read_in_the_language_of_its_reader(scene: Scene, make: Callable[[Scene], str]) -> None:
    """Whoever measured it had another language: a finding is kept, sent and compared."""
    with override("de"):
        says = make(scene)
        found = diagnosis.check().findings
    assert says in [each.says for each in found]


def test_why_shows_what_is_wrong_and_nothing_of_others(scene: Scene, root: Client) -> None:
    """The page of a job, the command and the function show the findings that keep this job from starting."""
    says = behind_a_limit(scene)
    held = scene.store.page("default", State.BLOCKED)[0]
    scene.filler.add(queue="photos")
    scene.store.pause("default", name="shop.other")
    said = diagnosis.why(held)
    assert [each.says for each in said.findings] == [says]
    assert said.reason.cause == "limit"
    out = StringIO()
    call_command("jobs", "why", held.id, stdout=out)
    assert says in out.getvalue()
    page = unescape(root.get(f"{BASE}job/default/{held.id}/").text).replace("\xa0", " ")
    assert says in page
    assert "photos is waiting" not in page.partition('id="content"')[2]


WORKERS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "other queues": [{"queues": ["mail"]}],
    "quiet": [{"state": "quiet"}, {"queues": ["mail"]}],
    "all but this one": [{"queues": [], "patterns": ["*"], "excluded": ["de*"]}],
    "left the queue": [{"closed": 1, "closed_queues": ["default"]}],
    "one takes it": [{"state": "quiet"}, {}],
    "one will find it": [{"queues": [], "patterns": ["def*"], "excluded": ["mail"]}],
    "queues that cannot be read": [{"queues": None}],
}


@pytest.mark.parametrize("case", WORKERS)
def test_why_and_findings_agree_that_no_worker_takes_a_queue(console_store: Store, clock: Clock, case: str) -> None:
    id = Filler(console_store).add()
    for n, more in enumerate(WORKERS[case]):
        info = {"queues": ["default"], "children": [], "started_at": clock(), "at": clock(), **more}
        console_store.publish_worker(f"web-{n}:1", worker_info(**info), 60_000)
    said = diagnosis.why(console_store.get("default", id))
    is_served = case in ("one takes it", "one will find it", "queues that cannot be read")
    assert (said.reason.cause == "next") is is_served
    assert any(each.cause in ("no_workers", "no_worker") for each in said.findings) is not is_served


def test_a_store_that_works_has_none(scene: Scene) -> None:
    """Under load for a quarter of an hour: jobs that end, some that are retried, and a limit that is always taken."""
    for turn in range(90):
        for n in range(8):
            name, key = ("tests.limited", "k") if n < 3 else (NAME, None)
            scene.filler.add(name, controls=Controls(limit_key=key, limit=1 if key else 0))
        claims = scene.store.claim("default", "web-1:4711/1", 9, lease=60_000).claims
        scene.go(10 * SECOND)
        assert diagnosis.check().as_json() == [], turn
        for n, claim in enumerate(claims):
            if n == 1 and turn % 3 == 0:
                scene.store.retry(claim, scene.filler.attempt(claim, "TimeoutError", "no answer"), 5000)
            else:
                scene.store.complete("default", [Completed(claim, b"null", 10_000, NAME)])
        scene.store.sample(["default", "mail"])


def test_an_outage_is_found_as_long_as_it_lasts(scene: Scene) -> None:
    """What is usual was learnt before it, and the outage does not become the usual in a day."""
    for hour in range(30):
        down = hour >= 8
        if not down:
            scene.succeed(19)
        for _ in range(12 if down else 1):
            claim = scene.filler.run(scene.filler.add())
            scene.store.bury(claim, scene.filler.attempt(claim, "TimeoutError", "no answer"))
        found = scene.found("failing")
        assert [each.number for each in found] == [12] * down, hour
        if down:
            assert (found[0].subject, found[0].queue, found[0].more["usual"]) == (NAME, "default", 1)
            assert "TimeoutError" in found[0].reason
        for _ in range(12):
            scene.go(5 * MINUTE)
            scene.store.sample(["default"])
