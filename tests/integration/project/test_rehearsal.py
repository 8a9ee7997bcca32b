"""The page of the example where work is made slow and unreliable: its knobs, its lists, its sweep."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tests.support.backends.missing import chromium

pytest.importorskip("PIL", reason="the example's photos")

SCRIPT = """
import json, time, django
django.setup()
from django.core.management import call_command
from django.test import Client
from django.conf import settings
from django.test.utils import override_settings, setup_test_environment
setup_test_environment()
# Its jobs are for workers.
override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "TEST_STORE": settings.DJANGO_JOBS["STORE"]}).enable()
from django_jobs.stores import get_store
from django_jobs.core.values import State
call_command("migrate", verbosity=0)
client = Client()

def post(**fields):
    answer = client.post("/rehearsal/", fields, follow=True)
    assert answer.status_code == 200, answer.content
    return [str(message) for message in answer.context["messages"]]

def lists():
    return {state: n for state, n in client.get("/rehearsal/state.json").json().items() if n}

def batch(kind, number, **knobs):
    return post(kind=kind, number=number, **{"milliseconds": 0, "fail": 0, "hang": 0, "crash": 0, **knobs})

seen = {"page": client.get("/rehearsal/").content.decode()}
"""

#: The demo up to the first order: what it would play with.
DEMO = """
import json, sys
from types import ModuleType
from demo.__main__ import main
def play(*_, **__):
    from django_jobs.conf import get_settings
    settings = get_settings()
    print(json.dumps([settings.processes, settings.threads, settings.lease, settings.store]))
stage = sys.modules["demo.play"] = ModuleType("demo.play")
stage.play = play
main()
"""


def play(tmp_path: Path, script: str, **environment: str) -> dict[str, object]:
    """Run this in the example's settings; `seen` is what it leaves."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT + script + "\nprint(json.dumps(seen))"],
        cwd=ROOT / "example_project",
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "PYTHONPATH": str(ROOT),
            "SHOP_STATE": str(tmp_path),
            "SHOP_LEASE": "1",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    seen: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
    return seen


@pytest.mark.accepts("R22")
def test_batches_of_each_kind_are_enqueued_run_and_seen_in_the_lists(tmp_path: Path) -> None:
    seen = play(
        tmp_path,
        """
for kind in ("email", "webhook", "thumbnail", "invoice"):
    batch(kind, 5)
seen["before"] = lists()
call_command("runworkers", burst=True, queues=["rehearsal"], verbosity=0)
seen["after"] = lists()
""",
    )
    page = str(seen["page"])
    assert all(f'value="{kind}"' in page for kind in ("email", "webhook", "thumbnail", "invoice"))
    assert 'data-every="800"' in page
    assert 'value="sweep"' in page
    assert (seen["before"], seen["after"]) == ({"queued": 20}, {"succeeded": 20})


@pytest.mark.accepts("R22")
def test_the_page_fetches_its_lists_as_often_as_it_says(tmp_path: Path) -> None:
    """In a browser that waits shorter, and notes for how long it was told to: the page as served, and its script."""
    pytest.importorskip("playwright", reason="a browser")
    from playwright.sync_api import expect, sync_playwright

    seen, queued = play(tmp_path, ""), chain([1, 2], repeat(3))

    def serve(route: Any) -> None:
        if route.request.url.endswith("rehearsal.js"):
            route.fulfill(path=ROOT / "example_project/shop/static/shop/rehearsal.js")
        elif route.request.url.endswith("state.json"):
            route.fulfill(json={"queued": next(queued)})
        elif route.request.url.endswith("/rehearsal/"):
            route.fulfill(body=str(seen["page"]), content_type="text/html")
        else:
            route.abort()

    program = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.add_init_script(
            "const wait = setTimeout; window.told = []; window.setTimeout = (f, ms) => (told.push(ms), wait(f, 50))"
        )
        page.route("**/*", serve)
        page.goto("http://shop.test/rehearsal/")
        expect(page.locator('[data-list="queued"]')).to_have_text("3")
        assert set(page.evaluate("told")) == {800}
        browser.close()


@pytest.mark.accepts("R22")
def test_a_sweep_takes_back_what_a_lost_worker_held(tmp_path: Path) -> None:
    seen = play(
        tmp_path,
        """
batch("email", 3)
seen["lost"] = post(do="lose")
seen["held"] = lists()
deadline = time.monotonic() + 30
while not lists().get("queued") and time.monotonic() < deadline:
    seen["said"] = post(do="sweep")
seen["lists"] = lists()
""",
    )
    assert "Jobs of the lost worker: 3." in str(seen["lost"])
    assert seen["held"] == {"running": 3}
    assert (seen["said"], seen["lists"]) == (["Jobs that the sweep recovered: 3."], {"queued": 3})


@pytest.mark.accepts("R23")
def test_work_can_be_told_to_be_slow_to_fail_to_hang_and_to_crash(tmp_path: Path) -> None:
    seen = play(
        tmp_path,
        """
batch("email", 2, milliseconds=300)
batch("webhook", 2, fail=100)
batch("thumbnail", 1, hang=100)
batch("invoice", 1, crash=100)
call_command("runworkers", drain=True, queues=["rehearsal"], verbosity=0, processes=1, threads=4)
infos = [info for state in State for info in get_store().page("rehearsal", state)]
seen["ends"] = sorted([info.attempts[-1].outcome if info.attempts else "succeeded", info.state] for info in infos)
seen["slow"] = min(info.run_ms for info in infos if info.state == "succeeded")
""",
    )
    ends = [tuple(end) for end in seen["ends"]]  # type: ignore[attr-defined]
    assert [outcome for outcome, _ in ends] == ["failed", "failed", "succeeded", "succeeded", "timeout", "worker_lost"]
    assert ("worker_lost", "dead") in ends, "three times, and that is the end of it"
    assert int(str(seen["slow"])) >= 300


@pytest.mark.accepts("R23")
def test_the_pool_the_store_and_the_lease_of_the_demo_are_options_of_it(tmp_path: Path) -> None:
    seen = play(
        tmp_path / "namespace",
        """
from django_jobs.conf import get_settings
seen["namespace"] = get_settings().namespace
""",
        SHOP_NAMESPACE="rehearsed",
    )
    assert seen["namespace"] == "rehearsed"
    store = f"embedded:{tmp_path / 'other'}"
    ran = subprocess.run(
        [sys.executable, "-c", DEMO, "--processes", "3", "--threads", "5", "--lease", "7"],
        cwd=ROOT / "example_project",
        env={**os.environ, "PYTHONPATH": str(ROOT), "SHOP_STATE": str(tmp_path / "demo"), "SHOP_STORE": store},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert json.loads(ran.stdout) == [3, 5, 7.0, store]
    if make := shutil.which("make"):
        said = subprocess.run(
            [make, "-n", "demo", "STORE=redis://h/3", "ARGS=--lease 7"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        assert "SHOP_STORE='redis://h/3'" in said
        assert "-m demo --lease 7" in said
