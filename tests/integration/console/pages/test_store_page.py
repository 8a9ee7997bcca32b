"""The page of the store: what doctor knows of the server, and the remedies."""

from __future__ import annotations

from html import unescape
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client

from django_jobs.operations.diagnosis import facts as server_module
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.console.conftest import BASE

pytestmark = pytest.mark.django_db

PAGE = f"{BASE}store/"
#: What INFO tells of a server in which everything is wrong.
ILL = {
    "kind": "redis", "server": "redis", "version": "6.0.20", "address": "redis.example:6379", "role": "slave",
    "primary_link": "down", "maxmemory": "1000000", "used_memory": "999999", "eviction_policy": "allkeys-lru",
    "evicted_keys": "4211", "append_only_file": "off", "last_save_failed": "yes", "last_append_failed": "no",
    "last_save": "1700000000", "connected_clients": "9000", "maxclients": "10000", "blocked_clients": "12",
    "uptime_seconds": "90061", "peak_memory": "1000000", "unsaved_changes": "55555",
}  # fmt: skip


def facts(text: str) -> dict[str, str]:
    """The description on a page."""
    found = {}
    for part in text.partition('id="jobs-store"')[2].partition("</dl>")[0].split("<dt>")[1:]:
        label, _, value = part.partition("</dt><dd><bdi>")
        found[unescape(label)] = unescape(value.partition("</bdi>")[0])
    return found


def levels(text: str) -> list[str]:
    part = text.partition('class="jobs-findings"')[2].partition("</ul>")[0]
    return [each.partition('"')[0] for each in part.split('<li class="jobs-finding-')[1:]]


def test_the_store_tells_of_itself(console_store: Store, root: Client) -> None:
    text = root.get(PAGE).text
    told = facts(text)
    assert told["One call took"].endswith(("ms", " s"))
    assert "Difference of the clocks" in told
    assert told["Queues"].isdigit()
    assert told["Server"].startswith(("Redis", "Valkey"))
    assert told["Role"] == "primary, with replicas: 0"
    assert "without a limit" in told["Memory in use"]
    assert told["Eviction policy"] == "noeviction"
    kept = console_store.transport.client.info("persistence")["aof_enabled"]  # other tests switch it
    assert told["Append-only file"] == ("on" if kept else "off")
    assert int(told["Clients"].split(" ")[0]) > 0


def test_what_is_wrong_is_said_with_its_remedy_worst_first(
    console_store: Store, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_store, "describe", lambda: ILL)
    text = unescape(root.get(PAGE).text)
    for said in [
        "Use Redis 6.2 or later, or Valkey.", "The store is read-only (slave)", "Let STORE name a primary server",
        "Redis could not write to its disk", "make room on its disk", "Set `appendonly yes`.",
        "Set `maxmemory-policy noeviction`.", "Redis is nearly full: 99 %", "Raise `maxmemory`",
    ]:  # fmt: skip
        assert said in text, said
    found = levels(text)
    assert found == sorted(found, key=("error", "warning", "ok").index)
    assert found.count("error") == 5  # with the clock of the tests, which differs from the machine's
    told = facts(text)
    assert told["Role"] == "replica; its link to the primary: down"
    assert told["Memory in use"] == "977 KiB of 977 KiB"
    assert told["Clients"] == "9,000 of 10,000"
    assert told["Running for"] == "1 d 1 h"
    assert told["Last attempt at one"] == "failed"


def test_doctor_says_the_same(console_store: Store, root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it reads the description and the clock of the store once for all its findings."""
    asked: list[None] = []
    monkeypatch.setattr(console_store, "describe", lambda: asked.append(None) or ILL)
    text, said = unescape(root.get(PAGE).text), StringIO()
    asked.clear()
    with pytest.raises(SystemExit):
        call_command("jobs", "doctor", stdout=said)
    assert len(asked) == 1
    part = text.partition('class="jobs-findings"')[2].partition("</ul>")[0]
    shown = [each.partition("</bdi>")[0] for each in part.split("<bdi>")[1:]]
    assert len(shown) > 6
    for each in shown:
        if "clock" not in each:
            assert each.partition(" Since")[0] in said.getvalue()


def test_a_server_that_tells_nothing_is_shown(
    console_store: Store, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user of Redis may be refused INFO, or get a part of it."""
    monkeypatch.setattr(console_store, "describe", lambda: {"kind": "redis", "address": "x", "version": "unknown"})
    told = facts(root.get(PAGE).text)
    assert told["Role"] == told["Eviction policy"] == "not told by the server"


def test_the_clock_is_compared(
    console_store: Store, root: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for off, level in [(0, "ok"), (5, "warning"), (-5, "warning"), (400, "error")]:
        monkeypatch.setattr(server_module, "time", lambda off=off: clock.now / 1000 - off)
        text = unescape(root.get(PAGE).text)
        assert ("Run NTP on both." in text) is (level != "ok")
        assert facts(text)["Difference of the clocks"] in (f"{off:+.2f} s", "-0.00 s", "+0.00 s")
        assert level in levels(text)


def test_the_alarms_about_it_lead_to_it(console_store: Store, root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_store, "describe", lambda: ILL)
    text = unescape(root.get(BASE).text)
    for said in ("The store is read-only", "Redis could not write", "Redis may delete jobs", "Redis is nearly full"):
        assert f'<a href="{PAGE}"><bdi>{said}' in text
