"""`jobs doctor` on a damaged store: it names what is wrong, changes nothing, and repairs on request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from django_jobs.core import registry
from django_jobs.core.values import Attempt, Faults, NewJob, State
from django_jobs.events.receivers import here
from django_jobs.management.jobs_commands.doctor import DOCUMENTS, ORPHANS
from django_jobs.signals import job_dead
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.keys import FLEET_KEYS
from tests.contract.operating.test_repair import misplace
from tests.integration.project.test_checks import registered, task
from tests.support.console_data import worker_info

pytestmark = pytest.mark.django_db
MakeJob = Callable[..., NewJob]


def doctor(*words: str) -> tuple[int, list[tuple[str, str, str]]]:
    """Exit code, and what is not well: level, subject, text."""
    out, code = StringIO(), 0
    try:
        call_command("jobs", "doctor", "--json", *words, stdout=out)
    except SystemExit as ended:
        code = int(str(ended.code))
    found = json.loads(out.getvalue())["findings"]
    return code, [(each["level"], each["subject"], each["says"]) for each in found if each["level"] != "ok"]


@pytest.fixture
def bare_project() -> Iterator[None]:
    """Its settings are in order, and the only job is the one that `make_job` names."""
    others = registry.all_definitions()
    for definition in others:
        registry.unregister(definition.name)
    yield
    for definition in others:
        registry.register(definition)


@pytest.fixture
def live(make_redis_store: Callable[..., Store], bare_project: None) -> Iterator[Store]:
    """A store with the machine's own clock and a worker."""
    store = make_redis_store(clock=None)
    store.publish_worker("web-1:4711", worker_info(), 60_000)
    use_store(store)
    yield store
    use_store(None)


def errors(found: list[tuple[str, str, str]]) -> list[str]:
    return [f"{subject}: {says}" for level, subject, says in found if level == "error"]


def test_a_sound_store_has_no_orphans(live: Store, make_job: MakeJob) -> None:
    live.enqueue("default", [make_job("a"), make_job("b", unique="ab" * 32, limit_key="k", limit=1)])
    live.claim("default", "web-1:4711", 1, lease=60_000)
    code, found = doctor()
    assert (code, errors(found)) == (0, [])


def test_what_is_not_there_yet_is_not_called_unreadable(live: Store, make_job: MakeJob) -> None:
    def unreadable() -> list[str]:
        return [says for _, subject, says in doctor()[1] if subject == "unreadable"]

    assert unreadable() == [], "an empty store"
    live.enqueue("default", [make_job("a")])
    assert unreadable() == [], "a queue of which no sample was taken"
    live.sample(["default"])
    live.transport.command("HSET", live.keys.of("default")["samples"], "all:300000", "{")
    assert len(unreadable()) == 1


def test_an_orphan_is_named_and_left_alone(live: Store, make_job: MakeJob) -> None:
    live.enqueue("default", [make_job("orphan"), make_job("sound")])
    misplace(live, "orphan")
    for _ in range(2):
        code, found = doctor()
        assert code == 1
        (said,) = errors(found)
        assert said.startswith("orphans: Queue 'default': jobs are in no state, or in several (1): orphan.")
        assert "--repair" in said
    assert [claim.id for claim in live.claim("default", "w", 9, lease=60_000).claims] == ["sound"]


@pytest.mark.parametrize("key", [*FLEET_KEYS, *(f"document:{name}" for name in DOCUMENTS)])
def test_a_broken_key_that_belongs_to_no_queue_is_named_and_set_aside(live: Store, make_job: MakeJob, key: str) -> None:
    """The error that others meet says that `jobs doctor` shows which key it is."""
    live.enqueue("default", [make_job("a")])
    name = live.keys.fleet(key)
    live.transport.command("DEL", name)
    live.transport.command("RPUSH", name, "junk")
    code, found = doctor()
    assert code == 1
    assert any(name in said for said in errors(found))
    assert name in {subject: says for _, subject, says in doctor("--repair")[1]}["repaired"]
    assert live.transport.command("EXISTS", name) == 0
    code, found = doctor()
    assert (code, errors(found)) == (0, [])


def test_every_kind_of_fault_has_words(live: Store, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    live.enqueue("default", [make_job("a")])
    kinds = live.reconcile("default").keys()
    monkeypatch.setattr(live, "faults", lambda queue: Faults({kind: ["a"] for kind in sorted(kinds)}, True))
    _, found = doctor()
    assert {says.partition(":")[0] for _, subject, says in found if subject == "orphans"} == {"Queue 'default'"}
    assert kinds == ORPHANS.keys()


@pytest.mark.redis
def test_failed_jobs_that_an_older_worker_left_out_of_the_groups_are_a_warning(
    make_redis_store: Any, make_job: MakeJob, bare_project: None
) -> None:
    store: Store = make_redis_store(clock=None)
    use_store(store)
    store.publish_worker("web-1:4711", worker_info(), 60_000)
    store.enqueue("default", [make_job("a")])
    (claim,) = store.claim("default", "w", 1, lease=60_000).claims
    store.bury(claim, Attempt(1, "failed", store.now(), error="x"))
    names = store.keys.of("default")
    store.transport.client.delete(*(names[key] for key in ("failures", "grouped", "error_groups")))
    code, found = doctor()
    said = [(level, says) for level, subject, says in found if subject == "orphans"]
    assert (code, [level for level, _ in said]) == (0, ["warning"])
    assert said[0][1].startswith("Queue 'default': failed jobs are missing from the groups of errors (1): a.")
    _, found = doctor("--repair")
    assert [says for _, subject, says in found if subject == "orphans"] == []


def test_a_repair_mends_it_and_tells_of_what_may_not_run_again(live: Store, make_job: MakeJob) -> None:
    live.enqueue("default", [make_job("again"), make_job("once", at_most_once=True)])
    misplace(live, "again")
    misplace(live, "once")
    told: list[tuple[str, str]] = []

    def hear(job_id: str, outcome: str, **more: object) -> None:
        told.append((job_id, outcome))

    job_dead.connect(hear)
    try:
        code, found = doctor("--repair")
        assert here().finish(30)
    finally:
        job_dead.disconnect(hear)
    assert (code, errors(found)) == (0, [])
    assert ("warning", "repaired", "job without place: 2 in queue 'default'.") in found
    assert [info.id for info in live.page("default", State.DEAD)] == ["once"]
    assert [info.id for info in live.page("default", State.QUEUED)] == ["again"]
    assert told == [("once", "misplaced")]


@pytest.mark.redis
@pytest.mark.parametrize("key", ["unique", "queued", "paused"])
def test_a_key_of_another_type_is_named_and_the_other_looks_go_on(
    make_redis_store: Any, make_job: MakeJob, bare_project: None, key: str
) -> None:
    store: Store = make_redis_store(clock=None)
    use_store(store)
    store.enqueue("default", [make_job("a")])
    name = store.keys.of("default")[key]
    store.transport.client.delete(name)
    store.transport.client.set(name, "junk")
    code, found = doctor()
    assert code == 1
    assert any(said.startswith("orphans") and name in said for said in errors(found))
    assert any(level == "warning" and subject == "workers" for level, subject, _ in found)
    assert any("checked after that repair" in says for _, _, says in found)
    code, found = doctor("--repair")
    assert (code, errors(found)) == (0, [])
    use_store(None)


@pytest.mark.accepts("R04")
def test_jobs_that_no_living_worker_knows_are_named_by_the_doctor_and_the_overview(
    live: Store, make_job: MakeJob, admin_client: Client
) -> None:
    live.enqueue("default", [make_job(f"n{n}", name="brand.new") for n in range(3)])
    claimed = live.claim("default", "web-1:4711/1", 1, lease=30_000, knows="old").claims
    live.park(claimed[0], "old")
    live.claim("default", "web-1:4711/1", 1, lease=30_000, knows="old")
    live.publish_worker("web-1:4711", worker_info(knows="old", queues=["default"]), 60_000)
    code, found = doctor()
    named = "names: 3 jobs named brand.new in default wait for a worker that knows them. No running worker does."
    assert (code, [each for each in errors(found) if named in each] != []) == (1, True)
    page = admin_client.get("/admin/django_jobs/dashboard/").content.decode()
    assert "3 jobs named brand.new in default wait for a worker that knows them" in page

    live.publish_worker("web-2:11", worker_info(knows="new", queues=["default"]), 60_000)
    assert not [each for each in errors(doctor()[1]) if "names:" in each]
    assert "brand.new" not in admin_client.get("/admin/django_jobs/dashboard/").content.decode()


def test_what_workers_mend_keeps_no_worker_from_starting(
    live: Store, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new release brings the worker that knows the job; after a fault, the workers that repair it."""
    live.enqueue("default", [make_job("orphan"), make_job("new", name="brand.new")])
    misplace(live, "orphan")
    live.park(live.claim("default", "web-1:4711/1", 1, lease=30_000, knows="old").claims[0], "old")
    live.publish_worker("web-1:4711", worker_info(knows="old", queues=["default"]), 60_000)
    live.enqueue("posts", [make_job("p")])
    code, found = doctor()
    assert (code, len(errors(found))) == (1, 3), found
    code, before_start = doctor("--before-start")
    assert (code, errors(before_start)) == (0, [])
    # The same is said, and nothing is repaired: only the levels differ.  When a wait began is computed at each look.
    said = [[(subject, text.split(" Since ")[0]) for _, subject, text in each] for each in (found, before_start)]
    assert said[0] == said[1]
    monkeypatch.setattr(live, "describe", lambda: {"server": "redis", "version": "5.0"})
    code, found = doctor("--before-start")
    assert code == 1
    assert "version" in [each.split(":")[0] for each in errors(found)]


def others(found: list[tuple[str, str, str]]) -> list[str]:
    return [says for _, subject, says in found if subject == "other project"]


def test_workers_of_another_project_are_told(live: Store, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "shop.settings")
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "STORE": "redis://unused"}
    use_store(live)
    foreign = {"settings": "blog.settings", "jobs": ["blog.publish"], "job_count": 1, "knows": "other"}
    for name in ("blog-1:1", "blog-2:1"):
        live.publish_worker(name, worker_info(queues=["default", "posts"], **foreign), 60_000)
    (said,) = others(doctor()[1])
    assert said.startswith(
        "Workers blog-1:1, blog-2:1: The settings module is 'blog.settings', and here it is 'shop.settings'. "
        "1 job not known here: blog.publish."
    )
    assert "1 queue not in QUEUES here: posts." in said
    assert "different values of NAMESPACE" in said


def test_of_many_workers_that_differ_the_others_are_counted(live: Store) -> None:
    for n in range(8):
        more = {"jobs": [f"blog.publish_{n}"], "job_count": 1, "knows": str(n)}
        live.publish_worker(f"blog-{n}:1", worker_info(**more), 60_000)
    said = others(doctor()[1])
    assert (len(said), said[-1]) == (6, "And 3 more like this.")


def test_workers_of_this_project_are_not_told(live: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "shop.settings")
    ours = {"settings": "shop.settings", "jobs": registry.names(), "job_count": len(registry.names())}
    live.publish_worker("web-2:1", worker_info(knows=registry.digest(), **ours), 60_000)
    # "web-1:4711" publishes neither, as older workers; and what is not of the right type says nothing.
    live.publish_worker("web-3:1", worker_info(settings=7, jobs="shop", job_count=None, queues=None), 60_000)
    assert others(doctor()[1]) == []


def test_a_part_of_the_names_says_nothing_of_the_rest(live: Store, make_job: MakeJob) -> None:
    with registered(task):
        live.publish_worker("web-2:1", worker_info(jobs=[], job_count=300, knows="more"), 60_000)
        live.publish_worker("web-3:1", worker_info(jobs=["tests.one"], job_count=300, knows="more"), 60_000)
        (said,) = others(doctor()[1])
        assert said.startswith("Worker web-3:1: 1 job not known here: tests.one. Two projects")
        live.publish_worker("web-3:1", worker_info(jobs=["tests.one"], job_count=1, knows="more"), 60_000)
        (said,) = others(doctor()[1])
        assert "1 job of this project not known there: tests.checked." in said
