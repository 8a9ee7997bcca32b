"""The admin, the commands, the HTTP API and the archive over queues that are on different nodes of a Redis Cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from django_jobs import archive, browse, remote
from django_jobs.browse import Match
from django_jobs.core.values import State
from django_jobs.models import ArchivedJob
from django_jobs.operations import bulk
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.worker.maintenance.archiver import Archiver
from tests.integration.api.conftest import ALL, Api
from tests.integration.console.conftest import BASE
from tests.integration.databases import DatabaseSite
from tests.integration.worker.test_worker_archive import archived
from tests.support.console_data import Filler, shop_jobs, worker_info
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.django_db]

#: Names that differ in a last digit of 0 to 3 have slots in different quarters of all slots: all three nodes have some.
QUEUES = [f"shop-{n}" for n in range(6)]
#: Dead jobs of each queue: every queue has another number, so that a queue that is left out, or read twice, shows.
DEAD = {queue: 2 + number for number, queue in enumerate(QUEUES)}
SETTINGS: dict[str, Any] = {
    "STORE": "memory",
    "QUEUES": {queue: {} for queue in ("default", *QUEUES)},
    "API": {"REMOTE_HOSTS": ["localhost"]},
    "ARCHIVE": {"DAYS": 180},
}


@pytest.fixture(params=[pytest.param(0, id="few queues"), pytest.param(40, id="many queues")])
def others(request: pytest.FixtureRequest) -> list[str]:
    """Queues besides QUEUES, with one dead job each: with many, pages show numbers that a worker has published."""
    return [f"tenant-{n:02}" for n in range(request.param)]


@pytest.fixture
def store(make_cluster_store: Callable[..., Store], settings: Any) -> Iterator[Store]:
    """A store on three nodes, in use, with the archiver's outbox."""
    settings.DJANGO_JOBS = SETTINGS
    made = make_cluster_store(archive=True, clock=None)
    use_store(made)
    with shop_jobs():
        yield made


@pytest.fixture
def root(store: Store) -> Client:
    client = Client()
    client.force_login(User.objects.create_user("root", is_staff=True, is_superuser=True))
    return client


@pytest.fixture
def api(store: Store, settings: Any) -> Iterator[Api]:
    """A client of the API, and a remote job type for each queue."""
    settings.ROOT_URLCONF = "tests.integration.api.urls"
    remote.forget()
    made = Api(*ALL)
    for queue in QUEUES:
        assert made.post("v1/job-types", {"name": f"php.{queue}", "queue": queue, "attempts": 2}).status_code == 201
    yield made
    remote.forget()


def fill(store: Store, others: list[str]) -> None:
    """In each of QUEUES: its dead jobs, a running one, a succeeded one, and one that is scheduled."""
    filler = Filler(store)
    for queue in QUEUES:
        for state in (State.SUCCEEDED, State.RUNNING, State.SCHEDULED, *[State.DEAD] * DEAD[queue]):
            filler.make(state, queue=queue)
    for queue in others:
        filler.make(State.DEAD, queue=queue)
    store.publish_worker("web-1:4711", worker_info(queues=[*QUEUES, *others]), 60_000)
    browse.publish_snapshot()
    assert len({store.server_of(queue) for queue in QUEUES}) == 3


def counts(store: Store, state: State) -> dict[str, int]:
    return {queue: stats.counts[state] for queue, stats in zip(QUEUES, store.stats(QUEUES), strict=True)}


def command(*words: str) -> Any:
    """What `manage.py jobs … --json` prints."""
    out = StringIO()
    call_command("jobs", *words, "--json", stdout=out)
    return json.loads(out.getvalue())


def test_the_pages_count_the_jobs_of_every_node(store: Store, root: Client, others: list[str]) -> None:
    fill(store, others)
    total = sum(DEAD.values()) + len(others)
    overview = root.get(BASE)
    assert overview.context["queue_number"] == len(SETTINGS["QUEUES"]) + len(others)
    assert overview.context["missing"] == 0
    shown = root.get(f"{BASE}queues/").text
    listed = root.get(f"{BASE}jobs/dead/")
    assert listed.context["total"] == total
    assert listed.text.count('name="job"') == min(total, 50)
    for queue, number in DEAD.items():
        assert f"{BASE}queues/{queue}/" in shown
        found = store.page(queue, State.DEAD)
        assert len(found) == number
        assert root.get(f"{BASE}jobs/dead/?queue={queue}").text.count('name="job"') == number
        assert root.get(f"{BASE}queues/{queue}/").status_code == 200
        page = root.get(f"{BASE}job/{queue}/{found[0].id}/").text
        assert "TimeoutError" in page
        assert "smtplib.py" in page
        # An id alone says nothing about the node: every queue is asked.
        assert found[0].id in root.get(f"{BASE}jobs/queued/?q={found[0].id}").text


def test_all_dead_jobs_of_all_nodes_are_acted_on_from_the_console(
    store: Store, root: Client, others: list[str]
) -> None:
    verb = "retry"
    fill(store, others)
    total = sum(DEAD.values()) + len(others)
    asked = root.post(f"{BASE}jobs/dead/", {"verb": verb, "scope": "all"}).text
    assert f"{total} jobs in state “Dead”." in asked
    page = root.post(f"{BASE}jobs/dead/", {"verb": verb, "scope": "all", "confirmed": "1"})["Location"]
    bulk.drive(root.get(page).context["operation"].id, 60.0)
    operation = root.get(page).context["operation"]
    assert (operation.finished > 0, operation.total, operation.seen, operation.moved) == (True, total, total, total)
    assert counts(store, State.DEAD) == dict.fromkeys(QUEUES, 0)
    assert counts(store, State.QUEUED) == DEAD
    assert counts(store, State.RUNNING) == dict.fromkeys(QUEUES, 1)


def test_one_verb_on_the_jobs_of_one_error_or_one_queue_leaves_the_other_nodes_alone(store: Store) -> None:
    fill(store, [])
    filler = Filler(store)
    for number, queue in enumerate(QUEUES):
        filler.make(State.DEAD, "the bank is down", queue=queue, id=f"bank-{number}")
    of_one = bulk.start("revive", State.DEAD, Match(queue="shop-1"))
    bulk.drive(of_one.id, 60.0)
    of_error = bulk.start("delete", State.DEAD, Match(error="TimeoutError: the bank is down"))
    bulk.drive(of_error.id, 60.0)
    ended = [bulk.get(each.id) for each in (of_one, of_error)]
    assert [each and (each.moved, each.finished > 0) for each in ended] == [(DEAD["shop-1"] + 1, True), (5, True)]
    assert counts(store, State.DEAD) == DEAD | {"shop-1": 0}
    assert counts(store, State.QUEUED) == dict.fromkeys(QUEUES, 0) | {"shop-1": DEAD["shop-1"] + 1}


def test_the_commands_see_and_move_the_jobs_of_every_node(store: Store) -> None:
    fill(store, [])
    stats = command("stats")
    assert stats["states"]["dead"] == sum(DEAD.values())
    assert {queue: stats["queues"][queue]["dead"] for queue in QUEUES} == DEAD
    assert stats["totals"]["dead"] == sum(DEAD.values())
    rows = command("list", "dead", "--limit", "100")
    assert Counter(row["queue"] for row in rows) == DEAD
    latest = {row["queue"]: row["id"] for row in rows}
    for queue, id in latest.items():
        shown = command("show", id)
        assert (shown["queue"], shown["state"]) == (queue, "dead")
    moved = command("retry", *latest.values())["moved"]
    assert sorted(moved) == sorted(latest.values())
    assert command("retry", "--all", "--queue", "shop-2")["moved"] == DEAD["shop-2"] - 1
    assert command("delete", "--all", "dead")["moved"] == sum(DEAD.values()) - DEAD["shop-2"] - (len(QUEUES) - 1)
    assert counts(store, State.DEAD) == dict.fromkeys(QUEUES, 0)
    assert counts(store, State.QUEUED) == dict.fromkeys(QUEUES, 1) | {"shop-2": DEAD["shop-2"]}
    call_command("jobs", "pause", "--job", "shop.send_receipt", stdout=StringIO())
    assert all("shop.send_receipt" in stats.paused_types for stats in store.stats(QUEUES))
    assert [store.claim(queue, "w", 9, lease=60_000).claims for queue in QUEUES] == [[]] * len(QUEUES)


def test_the_doctor_finds_and_repairs_what_is_wrong_on_each_node(empty_registry: None, store: Store) -> None:
    fill(store, [])
    assert doctor() == []
    for queue in QUEUES:  # a job is taken out of its list by hand
        store.transport.command("ZREM", store.keys.of(queue)["dead"], store.page(queue, State.DEAD)[0].id)
    found = doctor()
    assert {queue for queue in QUEUES for says in found if f"'{queue}'" in says} == set(QUEUES), found
    doctor("--repair")
    assert doctor() == []
    waiting = counts(store, State.QUEUED)
    dead = counts(store, State.DEAD)
    assert {queue: waiting[queue] + dead[queue] for queue in QUEUES} == DEAD


def doctor(*words: str) -> list[str]:
    """The errors that `jobs doctor` names."""
    out = StringIO()
    with suppress(SystemExit):
        call_command("jobs", "doctor", "--json", *words, stdout=out)
    return [each["says"] for each in json.loads(out.getvalue())["findings"] if each["level"] == "error"]


def test_the_http_api_serves_jobs_of_every_node(store: Store, api: Api) -> None:
    for queue in QUEUES:
        for number in range(DEAD[queue]):
            assert api.put(f"v1/jobs/php.{queue}/{queue}.{number}", {"data": number}).status_code == 201
        # Sent twice, because the first answer was lost.
        assert api.put(f"v1/jobs/php.{queue}/{queue}.0", {"data": 0}).status_code == 200
    ids = {f"{queue}.{number}" for queue in QUEUES for number in range(DEAD[queue])}
    assert walk(api, "queued") == ids
    many = [{"name": f"php.{queue}", "id": f"bulk.{queue}", "data": 1} for queue in QUEUES]
    answers = api.post("v1/jobs", {"jobs": many}).json()["jobs"]
    assert [(each["id"], each["status"]) for each in answers] == [(each["id"], 201) for each in many]

    reports = []
    for queue in QUEUES:
        jobs = api.post(f"v1/queues/{queue}/claim", {"limit": 100}).json()["jobs"]
        assert {job["id"] for job in jobs} == {id for id in ids if id.startswith(queue)} | {f"bulk.{queue}"}
        held = api.post(f"v1/jobs/php.{queue}/{jobs[0]['id']}/extend", {"token": jobs[0]["token"], "lease": 90})
        assert (held.status_code, held.json()["lease"]) == (200, 90)
        for job in jobs:
            ended: dict[str, Any] = {"status": "succeeded", "result": job["id"]}
            if job["id"].startswith("bulk."):
                ended = {"status": "failed", "retryable": False, "error": "no paper"}
            reports.append({"name": job["name"], "id": job["id"], "token": job["token"], **ended})
    answers = api.post("v1/reports", {"reports": reports}).json()["reports"]
    assert {each["status"] for each in answers} == {200}, answers
    assert walk(api, "succeeded") == ids
    assert walk(api, "dead") == {f"bulk.{queue}" for queue in QUEUES}

    for queue in QUEUES:
        assert api.get(f"v1/jobs/{queue}.1").json()["result"] == f"{queue}.1"
        again = api.post(f"v1/jobs/php.{queue}/bulk.{queue}/retry")
        assert (again.status_code, again.json()["state"]) == (200, "queued")
        assert api("DELETE", f"v1/jobs/php.{queue}/bulk.{queue}").status_code == 200
    assert walk(api, "dead") == set()
    shown = {each["name"]: each for each in api.get("v1/queues").json()}
    assert {queue: shown[queue]["counts"]["succeeded"] for queue in QUEUES} == DEAD


def walk(api: Api, state: str) -> set[str]:
    """The ids of all pages; none comes twice."""
    ids: list[str] = []
    cursor = ""
    while cursor is not None:
        page = api.get(f"v1/jobs?state={state}&limit=5&cursor={cursor}").json()
        ids += [job["id"] for job in page["jobs"]]
        cursor = page["cursor"]
    assert len(set(ids)) == len(ids)
    return set(ids)


@pytest.fixture
def site(redis_cluster: str, tmp_path: Path) -> Iterator[DatabaseSite]:
    """A site on the cluster whose workers serve all queues and archive into a database of SQLite."""
    file = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(tmp_path / "archive.sqlite3"),
        "OPTIONS": {"timeout": 30},
    }
    names = {"NAMESPACE": f"a{uuid4().hex[:10]}", "QUEUES": {queue: {} for queue in ("default", *QUEUES)}}
    made = DatabaseSite(tmp_path, redis_cluster, {"default": file}, ARCHIVE={"DAYS": 180}, **names)
    made.options = replace(made.options, archive=True)
    made.migrate()
    yield made
    made.close()


def test_workers_run_move_and_archive_the_jobs_of_every_node(site: DatabaseSite) -> None:
    use_store(site.store)
    filler = Filler(site.store)
    for queue in QUEUES:
        for number in range(20):
            filler.make(State.DEAD, queue=queue, id=f"{queue}-{number}", name="work", call=[[0], {}])
    operation = bulk.start("revive", State.DEAD, Match())
    pools = [site.pool() for _ in range(2)]
    ids = sorted(f"{queue}-{number}" for queue in QUEUES for number in range(20))

    def succeeded() -> bool:
        return all(stats.counts["succeeded"] == 20 for stats in site.store.stats(QUEUES))

    wait_until(succeeded, "the workers have revived and run all jobs", seconds=60)
    wait_until(lambda: not sum(stats.unarchived for stats in site.store.stats(QUEUES)), "all is archived", seconds=60)
    ended = bulk.get(operation.id)
    assert ended is not None
    assert ended.moved == 120
    assert sorted(event.id for event in site.ledger.read() if event.kind == "start") == ids
    assert sorted(archived(site)) == ids
    assert [pool.stop() for pool in pools]


def test_one_archiver_has_each_queue_and_writes_every_job_once(store: Store) -> None:
    fill(store, [])
    first, second = (Archiver(store, lambda: QUEUES) for _ in range(2))
    ended = sum(DEAD.values()) + len(QUEUES)
    assert (first.tick(), second.tick()) == (ended, 0)
    first.leave()
    assert second.tick() == 0
    assert ArchivedJob.objects.count() == ended
    rows = Counter(ArchivedJob.objects.values_list("queue", "status"))
    assert rows == {(queue, "dead"): DEAD[queue] for queue in QUEUES} | {(queue, "succeeded"): 1 for queue in QUEUES}
    assert [stats.unarchived for stats in store.stats(QUEUES)] == [0] * len(QUEUES)
    assert {archive.info_of(row).queue for row in ArchivedJob.objects.all()} == set(QUEUES)
