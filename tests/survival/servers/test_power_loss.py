"""The machine loses power: Redis begins again on an append-only file that is cut off somewhere in its last seconds."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from django_jobs.core.values import Completed, Lane
from django_jobs.serialization.record import decode
from django_jobs.stores.redis import Store
from django_jobs.stores.values.options import StoreOptions
from tests.support.backends.redis_process import RedisServer
from tests.support.dose import dose
from tests.support.fsck import fsck
from tests.support.pools import Producer, Site

pytestmark = [pytest.mark.survival, pytest.mark.redis, pytest.mark.timeout(dose(600, long=1800))]

Q = "default"
COPIES = dose(3, long=100)
#: As much as a disk may not have written yet; and the least that one accepted job takes in the file.
TAIL, LEAST = 64 << 10, 200


def cut_copy(server: RedisServer, folder: Path, cut: int) -> Path:
    """The server's files as the disk might have them, without the last `cut` bytes of the newest."""
    shutil.copytree(server.folder, folder)
    newest = max(folder.rglob("*.aof"), key=lambda path: path.stat().st_mtime)
    with newest.open("r+b") as file:
        file.truncate(max(0, newest.stat().st_size - cut))
    return folder


@pytest.mark.accepts("P03", "P14", "G04")
def test_on_a_file_that_is_cut_off_anywhere_everything_older_is_there_and_runs(
    site: Site, server: RedisServer, tmp_path: Path
) -> None:
    dice = random.Random(68)
    producer, pool = site.producer(), site.pool()
    for copy in range(COPIES):
        ids = [f"{copy}-{n}" for n in range(400)]
        producer.ask("work", ids, 2)
        producer.ask("five", [f"{copy}-five-{n}" for n in range(20)], 2)
        site.ledger.wait("end", site.ledger.count("end") + dice.randrange(1, 60))
        before = [event.id for event in site.ledger.read() if event.kind == "ack"]
        cut = dice.choice((0, 1, 99, dice.randrange(TAIL)))
        after_the_cut(cut_copy(server, tmp_path / f"copy-{copy}", cut), before)
        answered(producer)
    site.wait_drained()
    assert pool.stop() == 0
    site.verdict()


def answered(producer: Producer) -> None:
    assert not any(producer.answer()["errors"] for _ in range(2))


def after_the_cut(folder: Path, accepted: list[str]) -> None:
    """A server on those files: what is missing was accepted last; the rest is sound after a repair, and runs."""
    server = RedisServer(folder).start()
    # A minute later: every lease of that time is over.
    now = server.client().time()[0] * 1000 + 60_000
    store = Store.from_setting(server.url, options=StoreOptions(history=200_000, clock=lambda: now))
    try:
        there = {id.decode() for id in store.transport.client.hkeys(store.keys.of(Q)["jobs"])}
        lost = [id for id in accepted if id not in there]
        assert lost == accepted[len(accepted) - len(lost) :], "older ones are missing than some that are there"
        assert len(lost) <= TAIL // LEAST
        while store.recover(Q) or any(store.reconcile(Q).values()):
            continue
        assert fsck(store, Q) == []
        assert drain(store) <= there
        states = Counter({state: count for state, count in store.stats([Q])[0].counts.items() if count})
        assert states == Counter({"succeeded": len(there)})
    finally:
        store.close()
        server.close()


def drain(store: Store) -> set[str]:
    """Run everything; the ids that ran."""
    ran: set[str] = set()
    idle = 0
    while idle < 2:
        claims = [c for lane in Lane for c in store.claim(Q, "later", 100, lane=lane, lease=60_000).claims]
        assert not store.complete(Q, [Completed(c, controls=decode(c.id, Q, c.record).controls) for c in claims])
        ran |= {claim.id for claim in claims}
        idle = 0 if claims else idle + 1
    return ran
