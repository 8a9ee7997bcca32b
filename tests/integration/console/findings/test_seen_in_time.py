"""Trouble that real workers make, and after how long each place that tells of findings says it; at one queue, at six
and at 500."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from html import unescape
from io import StringIO
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from django.contrib import admin
from django.core.management import call_command
from django.test import Client
from django.urls import include, path

from django_jobs import metrics
from django_jobs.core.values import State
from django_jobs.models import ApiToken
from django_jobs.operations import diagnosis
from django_jobs.stores import use_store
from tests.integration.console.conftest import BASE
from tests.integration.workers import WorkerSite
from tests.support.dose import dose
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db, pytest.mark.timed(beside=1)]
urlpatterns = [path("admin/", admin.site.urls), path("jobs/", include("django_jobs.api.urls"))]

#: Seconds.
LEASE = 5


class Trouble(NamedTuple):
    """What is wrong; words that each place must say of it; and within how many seconds."""

    kind: str
    words: str
    seconds: float
    #: the job that waits because of it; "" = none.
    behind: str = ""
    queue: str = "default"


@pytest.fixture(params=dose([6], long=[1, 6, 500]))
def site(request: pytest.FixtureRequest, redis_server: str, tmp_path: Path, settings: Any) -> Iterator[WorkerSite]:
    """A site with so many queues that are served."""
    served = ["default", "mail", *(f"queue-{n}" for n in range(2, request.param))][: request.param]
    own = {"NAMESPACE": f"w{uuid4().hex[:10]}", "LEASE": LEASE, "QUEUES": {queue: {} for queue in served}}
    made = WorkerSite(tmp_path, redis_server, **own)
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, **own, "API": {}}
    settings.ROOT_URLCONF = __name__
    use_store(made.store)
    yield made
    use_store(None)
    made.close()


def make_trouble(site: WorkerSite) -> Iterator[Trouble]:
    """Bring the site into each trouble that comes within a minute or two."""
    one = {"limit_key": "turn", "limit": 1}
    for id in [site.put("turn", **one) for _ in range(10)]:
        site.wait(id)
    hung = site.put("turn", True, **one)
    site.wait(hung, State.RUNNING)
    behind = [site.put("turn", **one) for _ in range(3)][-1]
    yield Trouble("standstill", f"wait behind job {hung} (turn)", 60, behind)
    yield Trouble("overrun", f"Job {hung} (turn) in default has run for", 60 + 30)

    site.store.pause("default", name="add")
    yield Trouble("standstill", "waits, because add is paused.", 60, site.put("add", 1, 2))
    yield Trouble(
        "unknown_names", "named brand.new in default waits for a worker that knows it.", 30, site.put("brand.new")
    )
    unserved = site.put("add", 1, 2, queue="photos")
    yield Trouble("no_worker", "photos is waiting, and no worker serves this queue.", 30, unserved, "photos")
    for _ in range(30):
        site.put("fails_with_a_large_local")
    yield Trouble("failing", "attempts of fails_with_a_large_local in default failed in the last ten minutes", 30)

    other = site.pool("--queues", "default", processes=1)
    name = wait_until(
        lambda: next((each.name for each in site.store.workers() if each.info["pid"] == other.pid), ""), "it reports"
    )
    os.kill(other.pid, signal.SIGSTOP)
    yield Trouble("silent_worker", f"{name} has not reported for", 2 * LEASE)


def jobs(*words: str) -> str:
    out = StringIO()
    with suppress(SystemExit):
        call_command("jobs", *words, stdout=out, stderr=out)
    return out.getvalue()


def places(root: Client) -> dict[str, Callable[[Trouble], str]]:
    """What each place says, of this trouble where it is asked for one."""
    _, secret = ApiToken.objects.issue("reader", ["read"], ())
    token = {"Authorization": f"Bearer {secret}"}

    def findings(_: Trouble) -> str:
        return "".join(each["says"] for each in Client().get("/jobs/v1/findings", headers=token).json())

    return {
        "overview": lambda _: root.get(BASE).text,
        "findings": lambda _: jobs("findings", "--json"),
        "doctor": lambda _: jobs("doctor"),
        "api": findings,
        "metrics": lambda _: metrics.text().decode(),
        "page": lambda trouble: root.get(f"{BASE}job/{trouble.queue}/{trouble.behind}/").text,
        "why": lambda trouble: jobs("why", trouble.behind),
    }


#: Places that are asked for one job.
OF_ONE_JOB = ("page", "why")


def tells(where: str, text: str, trouble: Trouble) -> bool:
    if where == "metrics":
        return any(line.startswith(f'django_jobs_findings{{kind="{trouble.kind}"') for line in text.splitlines())
    return trouble.words in unescape(text).replace("\xa0", " ")


class Unwell(list[Any]):
    """What is wrong: false, so that it is waited for until it is over, and shown if that does not come."""

    def __bool__(self) -> bool:
        return False


def test_each_place_tells_of_trouble_in_time(site: WorkerSite, root: Client) -> None:
    site.pool("--queues", ",".join(site.jobs_settings["QUEUES"]), processes=2, threads=4)
    wait_until(lambda: not (found := diagnosis.check().as_json()) or Unwell(found), "nothing is wrong before")
    tellers = places(root)
    begun = [(trouble, monotonic()) for trouble in make_trouble(site)]
    waited = [
        (trouble, at, where) for trouble, at in begun for where in tellers if where not in OF_ONE_JOB or trouble.behind
    ]
    took: dict[tuple[str, str], float] = {}

    def all_told_or_too_late() -> bool:
        said: dict[tuple[str, str], str] = {}  # a place that tells of all troubles is asked once in a round
        for trouble, at, where in waited:
            if (trouble.words, where) not in took:
                question = (where, trouble.behind if where in OF_ONE_JOB else "")
                text = said[question] = said.get(question) or tellers[where](trouble)
                if tells(where, text, trouble):
                    took[trouble.words, where] = monotonic() - at
                elif monotonic() - at > trouble.seconds:
                    took[trouble.words, where] = inf
        return len(took) == len(waited)

    wait_until(all_told_or_too_late, "each is told", every=1.0)
    for trouble, _ in begun:
        times = "  ".join(
            f"{where} {took[trouble.words, where]:.1f}" for where in tellers if (trouble.words, where) in took
        )
        print(f"{len(site.jobs_settings['QUEUES'])} queues, {trouble.kind}, within {trouble.seconds:g} s: {times}")
    assert [key for key, seconds in took.items() if seconds == inf] == []
