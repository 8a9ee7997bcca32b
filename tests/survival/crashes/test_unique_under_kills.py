"""Many producers want the same few jobs at once, while processes die: one job per key at a time, and then the next."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import takewhile

import pytest

from tests.support.checker import overlapping_lives
from tests.support.dose import dose
from tests.support.faults.chaos import Chaos
from tests.support.ledger import Event
from tests.support.pools import Site

pytestmark = [pytest.mark.survival, pytest.mark.redis, pytest.mark.timeout(dose(600, long=3600))]

PRODUCERS, KILLS = dose((4, 4), long=(50, 50))
#: Requests that a producer sends for each key in one go, and how often between two kills.
AT_ONCE, ROUNDS = 7, 4
#: Against going on for ever: ten times the turns that a quiet machine needs.
LAST_TURN = 10 * KILLS * ROUNDS
KEYS = ("a", "b", "c")


def key_of(id: str) -> str:
    return id.partition("-")[0]


def enough(generations: Counter[str]) -> bool:
    """Has a key been free again, and taken again, at least twice for each kill?"""
    return min(generations[key] for key in KEYS) > KILLS * 2


@pytest.mark.accepts("G08", "G62", "G75", "K02")
def test_of_equal_jobs_one_is_there_at_a_time_whoever_sends_and_whatever_dies(site: Site) -> None:
    producers = [site.producer() for _ in range(PRODUCERS)]
    producers[0].send("work", 20, prefix="warm")
    chaos = Chaos(site, seed=37, width=2, threads=3)
    site.ledger.wait("end", 20)
    generations: Counter[str] = Counter()
    # How far workers get between two turns is the machine's affair: turns go on until every key has had its share.
    for turn in takewhile(lambda turn: turn < KILLS * ROUNDS or not enough(generations), range(LAST_TURN)):
        for key in KEYS:
            for who, producer in enumerate(producers):
                producer.ask("unique_by", [f"{key}-{who}-{turn}-{n}" for n in range(AT_ONCE)], key, 4, turn % 5 == 0)
        if turn % ROUNDS == 0 and turn < KILLS * ROUNDS:
            chaos.strike()
        answers = [producer.answer() for producer in producers for _ in KEYS]
        assert not any(answer["errors"] for answer in answers)
        generations.update(key_of(id) for answer in answers for id in answer["acked"])
    site.wait_drained()
    last = {key: f"{key}-last" for key in KEYS}
    for key, id in last.items():
        producers[0].ask("unique_by", [id], key, 1, False)
        assert producers[0].answer()["acked"] == [id], "the key is free again"
    site.wait_drained()
    chaos.end()
    site.verdict()
    lives: dict[str, list[Event]] = defaultdict(list)
    for event in site.ledger.read():
        lives[key_of(event.id)].append(event)
    assert {key: overlapping_lives(lives[key]) for key in KEYS} == {key: [] for key in KEYS}
    assert enough(generations), generations
    assert site.ledger.count("declined") > PRODUCERS * KILLS
    client, names = site.store.transport.client, site.store.keys.of("default")
    assert client.hlen(names["unique"]) == 0
