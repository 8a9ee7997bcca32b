"""Odd values everywhere at the same time: pages, API, commands, workers and maintenance go on, and other jobs run."""

from __future__ import annotations

from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from django_jobs import archive
from django_jobs.core.values import State
from django_jobs.exceptions import StoreCorrupt, StoreFull
from tests.integration.api import work
from tests.integration.odd.readers import Readers
from tests.integration.odd.scene import Scene
from tests.integration.odd.values import SCORES, odd_texts
from tests.support.dose import dose

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

#: Keys whose elements say which job is next, or where a job is: an odd one there is damage, which repair answers.
PLACES = ("seq", "unique", "holdings", "answers", "wake", "wake_alone", "ends", "queues", "checker", "archiver")


@pytest.fixture
def readers(scene: Scene) -> Readers:
    readers = Readers(scene.store, scene.ids, scene.flows)
    kind = {"name": "php.resize", "queue": "pull", "attempts": 3, "timeout": 60}
    made = readers.caller.post("/jobs/v1/job-types", kind, "application/json", headers=readers.headers)
    assert made.status_code == 201, made.content
    return readers


def spoil(scene: Scene, turn: int) -> list[str]:
    """Put an odd value in place of every third, others in each turn.  Returns what was put where."""
    done, client = list[str](), scene.client
    for number, key in enumerate(scene.sound):
        name = key.decode().rpartition("}:")[2]
        if name in PLACES or name.startswith("answers"):
            continue
        match client.type(key):
            case b"hash":
                for at, (field, sound) in enumerate(sorted(client.hgetall(key).items())):
                    if (at + number + turn) % 3 == 0:
                        odd = list(odd_texts(sound))
                        value = odd[(turn * 31 + at * 7 + number) % len(odd)]
                        client.hset(key, field, value)
                        done.append(f"{name} {field!r}: {value[:80]!r}")
            case b"zset":
                for at, member in enumerate(client.zrange(key, 0, -1)):
                    if (at + number + turn) % 3 == 0:
                        score = SCORES[(turn + at) % len(SCORES)]
                        client.zadd(key, {member: score})
                        done.append(f"{name} {member!r}: {score!r}")
            case b"list":
                for at, sound in enumerate(client.lrange(key, 0, -1)):
                    if (at + number + turn) % 3 == 0:
                        odd = list(odd_texts(sound))
                        client.lset(key, at, odd[(turn * 31 + at) % len(odd)])
                        done.append(f"{name} {at}")
            case b"string":
                odd = list(odd_texts(client.get(key)))
                client.set(key, odd[turn % len(odd)])
                done.append(f"{name}")
    return done


def test_everything_goes_on_past_odd_values(scene: Scene, readers: Readers) -> None:
    failures, tried, values = list[str](), 0, 0
    for turn in range(dose(3, long=60)):
        scene.restore()
        done = spoil(scene, turn)
        values += len(done)
        chosen = {id for ids in scene.ids.values() for id in ids[turn % 4 :: 4]}
        good = [scene.put("default"), scene.put("pull", name="php.resize", args=b'[[{"width":9}],{}]')]
        work.ran.clear()
        for phase in (readers.looking(chosen, forms=turn % 2 == 1), readers.working()):
            for name, read in phase:
                tried += 1
                try:
                    read()
                except (StoreCorrupt, StoreFull):
                    continue
                except Exception as error:
                    failures.append(f"turn {turn}: {name}: {type(error).__name__}: {error!s:.300}")
        for id, queue in zip(good, ("default", "pull"), strict=True):
            info = scene.store.get(queue, id) or archive.find(id, queue)
            if info is None or info.state is not State.SUCCEEDED:
                failures.append(f"turn {turn}: the good job in {queue} is {info and info.state}")
            scene.ids[queue].remove(id)
    print(f"{values} values, {tried} reads, {len(failures)} failures")
    assert not failures, "\n".join(failures)


DAMAGED = {
    "jobs": b"+\ntests.greet\n{\n\n1\n\n[[],{}]",
    "attempts": b'{"at": "soon"}',
    "tries": b"many:0:0:0",
    "results": b"soon:1",
    "checkins": b"[" * 5_000,
    "samples": b"[1,",
    "totals": b"many",
    "archive": b"3:odd",
    "workers": b"1800000000000:{",
    "document:schedules": b'"soon"',
    "document:bulk": b"{",
    "document:snapshot": b"{",
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_doctor_names_what_cannot_be_read(scene: Scene, kind: str) -> None:
    assert "cannot be read" not in said_by_doctor()
    key, odd = scene.key(kind), DAMAGED[kind]
    if kind == "archive":
        scene.client.lset(key, 0, odd)
    else:
        for field in [each for each in scene.client.hkeys(key) if b"/" not in each and each != b"taken"]:
            scene.client.hset(key, field, odd)
    assert "cannot be read" in said_by_doctor()


def said_by_doctor() -> str:
    out: Any = StringIO()
    with suppress(SystemExit):
        call_command("jobs", "doctor", stdout=out)
    return str(out.getvalue())
