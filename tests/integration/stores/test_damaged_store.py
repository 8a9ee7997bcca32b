"""Pages, API and commands over a Redis in which somebody has broken keys: they say what they can, and never fail."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
import redis
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import include, path

from django_jobs.core.values import State
from django_jobs.exceptions import StoreError
from django_jobs.models import ApiToken
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.keys import FLEET_KEYS, QUEUE_KEYS
from tests.support.dose import dose
from tests.support.faults.corruptor import Corruptor
from tests.support.faults.walking import QUEUE, Walk
from tests.support.fsck import fsck

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

urlpatterns = [path("admin/", admin.site.urls), path("jobs/", include("django_jobs.api.urls"))]

PAGES = ["", "?period=day", "queues/", f"queues/{QUEUE}/", "jobs/dead/?group=1", "jobs/dead/?q=a&name=b", "workers/",
         "schedules/", "bulk/", "history/", *(f"jobs/{state}/" for state in State)]  # fmt: skip
CALLS = [
    "v1/queues",
    "v1/stats",
    "v1/queues/default/trend",
    "v1/job-types/tests.greet/trend",
    "v1/trend",
    "v1/findings",
    "v1/alarms",
    "v1/job-types",
    "v1/archived-jobs",
    "metrics",
    "healthz",
]
COMMANDS = [
    ("stats",),
    ("doctor",),
    ("findings",),
    ("alarms",),
    ("workers",),
    ("schedules",),
    *(("list", state) for state in State),
]
#: what a person may do to what is shown
CHANGES = [("dead", "retry"), ("dead", "delete"), ("scheduled", "cancel"), ("queued", "kill"), ("retry", "retry")]


class Visitor:
    """Looks at everything, and presses buttons."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.rng = store, random.Random(seed)
        self.person, self.caller = Client(), Client()
        self.person.force_login(User.objects.create_superuser(f"root-{seed}"))
        _, secret = ApiToken.objects.issue(f"all-{seed}", ("enqueue", "read", "manage", "work"))
        self.headers = {"Authorization": f"Bearer {secret}"}

    def visit(self) -> str:
        """One page, call, command or change; the answer must be one, and no fault of ours."""
        act = self.rng.choice((self._page, self._job, self._call, self._command, self._change))
        what, status = act()
        assert status < 500 or status == 503, f"{what} answers {status}"
        return what

    def _page(self) -> tuple[str, int]:
        page = self.rng.choice(PAGES)
        return page, self.person.get(f"/admin/django_jobs/dashboard/{page}").status_code

    def _job(self) -> tuple[str, int]:
        id = f"job-{self.rng.randint(1, 60)}"
        if self.rng.random() < 0.5:
            return f"job {id}", self.person.get(f"/admin/django_jobs/dashboard/job/{QUEUE}/{id}/").status_code
        return f"v1/jobs/{id}", self.caller.get(f"/jobs/v1/jobs/{id}", headers=self.headers).status_code

    def _call(self) -> tuple[str, int]:
        call = self.rng.choice(CALLS)
        return call, self.caller.get(f"/jobs/{call}", headers=self.headers).status_code

    def _command(self) -> tuple[str, int]:
        command = self.rng.choice(COMMANDS)
        with suppress(CommandError, SystemExit):
            call_command("jobs", *command, stdout=StringIO(), stderr=StringIO())
        return f"jobs {command}", 200

    def _change(self) -> tuple[str, int]:
        state, verb = self.rng.choice(CHANGES)
        data = {"verb": verb, "job": f"{QUEUE}/job-{self.rng.randint(1, 60)}", "confirmed": "1"}
        return f"{verb} {state}", self.person.post(f"/admin/django_jobs/dashboard/jobs/{state}/", data).status_code


@pytest.fixture
def damaged(make_redis_store: Any, settings: Any) -> Iterator[Store]:
    settings.ROOT_URLCONF = "tests.integration.stores.test_damaged_store"
    settings.DJANGO_JOBS = {"STORE": "memory", "QUEUES": {"default": {}, QUEUE: {}}, "API": {}}
    store = make_redis_store(history=20, dead=20, archive=True)
    use_store(store)
    yield store
    use_store(None)


@pytest.mark.accepts("G79", "K01", "K05")
def test_whatever_is_broken_every_page_call_and_command_answers(damaged: Store, clock: Any) -> None:
    client: redis.Redis = damaged.transport.client
    for seed in range(dose(4, long=100)):
        for key in client.scan_iter(match=f"{{{damaged.keys.namespace}*"):
            client.delete(key)
        walk, corruptor = Walk(damaged, clock, seed), Corruptor(client, damaged.keys.of(QUEUE), seed)
        fleet = Corruptor(client, {key: damaged.keys.fleet(key) for key in FLEET_KEYS}, seed, FLEET_KEYS)
        visitor = Visitor(damaged, seed)
        for _ in range(120):
            walk.step()
        for turn in range(12):
            corruptor.strike()
            fleet.strike(types=turn > 8)
            for _ in range(4):
                try:
                    visitor.visit()
                except Exception as error:
                    raise AssertionError(
                        f"seed {seed}, after {corruptor.done[-3:]}, {fleet.done[-3:]}: {error!r}"
                    ) from error
            with suppress(StoreError):
                damaged.reconcile(QUEUE)


@pytest.mark.accepts("K05")
@pytest.mark.parametrize("score", ["inf", "-inf", "1e300"])
def test_a_score_without_end_is_answered_too(damaged: Store, clock: Any, score: str) -> None:
    """In every place; here for users who may run scripts, and for those who may not."""
    client: redis.Redis = damaged.transport.client
    walk = Walk(damaged, clock, seed=3)
    for _ in range(200):
        walk.step()
    visitor, keys = Visitor(damaged, 1), damaged.keys.of(QUEUE)
    for name in [name for name, kind in QUEUE_KEYS.items() if kind == "zset"]:
        for id in client.zrange(keys[name], 0, 0):
            client.zadd(keys[name], {id: score})
    for _ in range(2):
        for n in range(1, walk.made + 1):
            page = visitor.person.get(f"/admin/django_jobs/dashboard/job/{QUEUE}/job-{n}/")
            assert page.status_code in (200, 404)
            assert damaged.standing(QUEUE, f"job-{n}").state in (None, *State)
        for page in PAGES:
            before = client.info("stats")["total_commands_processed"]
            assert visitor.person.get(f"/admin/django_jobs/dashboard/{page}").status_code == 200
            sent = client.info("stats")["total_commands_processed"] - before
            assert sent < 500, f"{page} sent {sent} commands"
        for state in (State.DEAD, State.RETRY):
            damaged.listed([QUEUE], state, 9, groups=damaged.failure_groups([QUEUE], state))
        fsck(damaged, QUEUE)
        damaged._scripts_refused = True
