"""Many producers want the same few jobs at once, while processes die: one job per key at a time, and then the next."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from tests.survival.checker import overlapping_lives
from tests.survival.conftest import LONG
from tests.survival.ledger import Event
from tests.survival.pools import Site
from tests.survival.storms import Storm

pytestmark = [pytest.mark.survival, pytest.mark.redis, pytest.mark.timeout(3600 if LONG else 600)]

PRODUCERS, KILLS = (50, 50) if LONG else (6, 4)
#: Requests that a producer sends for each key in one go, and how often between two kills.
AT_ONCE, ROUNDS = 7, 4
KEYS = ("a", "b", "c")


def key_of(id: str) -> str:
    return id.partition("-")[0]


@pytest.mark.accepts("G08", "G62", "G75", "K02")
def test_of_equal_jobs_one_is_there_at_a_time_whoever_sends_and_whatever_dies(site: Site) -> None:
    producers = [site.producer() for _ in range(PRODUCERS)]
    producers[0].send("work", 20, prefix="warm")
    storm = Storm(site, seed=37, width=2, threads=3)
    site.ledger.wait("end", 20)
    for turn in range(KILLS * ROUNDS):
        for key in KEYS:
            for who, producer in enumerate(producers):
                producer.ask("unique_by", [f"{key}-{who}-{turn}-{n}" for n in range(AT_ONCE)], key, 4, turn % 5 == 0)
        if turn % ROUNDS == 0:
            storm.strike()
        assert not any(producer.answer()["errors"] for producer in producers for _ in KEYS)
    site.wait_drained()
    last = {key: f"{key}-last" for key in KEYS}
    for key, id in last.items():
        producers[0].ask("unique_by", [id], key, 1, False)
        assert producers[0].answer()["acked"] == [id], "the key is free again"
    site.wait_drained()
    storm.end()
    verdict = site.verdict()
    lives: dict[str, list[Event]] = defaultdict(list)
    for event in site.ledger.read():
        lives[key_of(event.id)].append(event)
    assert {key: overlapping_lives(lives[key]) for key in KEYS} == {key: [] for key in KEYS}
    generations = Counter(key_of(id) for id in verdict.acked)
    assert min(generations[key] for key in KEYS) > KILLS * 2, generations
    assert site.ledger.count("declined") > PRODUCERS * KILLS
    client, names = site.store.transport.client, site.store.keys.of("default")
    assert client.hlen(names["unique"]) == 0
