"""The drawing of workflows: layers, boxes, lines."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from django_jobs.admin.pages.graph import (
    COLUMNS,
    HEIGHT,
    MIXED,
    MOST,
    WIDTH,
    Node,
    drawing,
    layers,
    shares,
    shortened,
    wide,
)


def node(number, *after, label=None, state="waiting"):
    return Node(number, f"step {number}", label or f"job {number}", state, after)


def test_a_step_stands_in_the_layer_of_its_longest_path():
    nodes = [node(0), node(1, 0), node(2, 0, 1), node(3, 0), node(4, 3, 2), node(5)]
    assert layers(nodes) == {0: 0, 1: 1, 2: 2, 3: 1, 4: 3, 5: 0}


def test_five_steps_are_five_boxes_with_their_lines():
    drawn = drawing([node(0), node(1, 0), node(2, 0), node(3, 1, 2), node(4, 3)])
    assert not drawn.is_grouped
    assert [box.steps for box in drawn.boxes] == [[0], [1], [2], [3], [4]]
    assert [box.x for box in drawn.boxes][:4] == [4, 240, 240, 476]
    assert len(drawn.lines) == 5


def test_a_long_chain_goes_down():
    across, down = (
        drawing([node(n, *range(max(0, n - 1), n)) for n in range(5)]),
        drawing([node(n, *range(max(0, n - 1), n)) for n in range(20)]),
    )
    assert across.width > across.height
    assert down.height > down.width


@pytest.mark.parametrize(
    ("nodes", "labels"),
    [
        # a group between two steps
        (
            [node(0, label="fetch"), *(node(n, 0, label="parse") for n in range(1, 499)), node(499, *range(1, 499))],
            {"step 0", "parse", "step 499"},
        ),
        # one chain of one job
        ([node(n, *range(max(0, n - 1), n), label="tick") for n in range(500)], {"tick"}),
        # one chain of steps with jobs of their own
        ([node(n, *range(max(0, n - 1), n)) for n in range(500)], {MIXED}),
        # steps with jobs of their own, side by side
        ([node(n) for n in range(500)], {MIXED}),
    ],
)
def test_500_steps_are_boxes_with_counts(nodes, labels):
    drawn = drawing(nodes)
    assert drawn.is_grouped
    assert len(drawn.boxes) <= MOST
    assert {box.label for box in drawn.boxes} == labels
    assert sum(box.counts.total() for box in drawn.boxes) == 500


@pytest.mark.parametrize("number", [1, 2, 30, 60, 61, 400])
@pytest.mark.parametrize("seed", range(5))
def test_random_graphs(number, seed):
    """Every step is in one box, every line leads onward, no box covers another, and all are inside the drawing."""
    chance = random.Random(seed)
    states = ["waiting", "live", "succeeded", "dead"]
    nodes = [
        node(
            n,
            *sorted(chance.sample(range(n), min(n, chance.randrange(4)))),
            label=f"job {chance.randrange(7)}",
            state=chance.choice(states),
        )
        for n in range(number)
    ]
    drawn, of = drawing(nodes), layers(nodes)
    assert Counter(n for box in drawn.boxes for n in box.steps) == Counter(range(number))
    assert len(drawn.boxes) <= max(MOST, 1)
    for box in drawn.boxes:
        assert box.counts == Counter(nodes[n].state for n in box.steps)
        assert 0 <= box.x <= drawn.width - WIDTH
        assert 0 <= box.y <= drawn.height - HEIGHT
        for other in drawn.boxes:
            if other is not box:
                assert abs(other.x - box.x) >= WIDTH or abs(other.y - box.y) >= HEIGHT
    if not drawn.is_grouped:
        place = {box.steps[0]: box for box in drawn.boxes}
        assert all(of[before] < of[each.number] for each in nodes for before in each.after)
        assert len(drawn.lines) == sum(len(each.after) for each in nodes)
        for each in nodes:
            for before in each.after:
                assert (place[before].x, place[before].y) != (place[each.number].x, place[each.number].y)


def test_a_box_has_the_state_that_a_person_looks_for_first():
    many = [node(n, label="parse", state="succeeded") for n in range(99)]
    (box,) = drawing([*many, node(99, label="parse", state="dead")]).boxes
    assert (box.state, box.states) == ("dead", ["dead", "succeeded"])


def test_texts_are_cut_to_the_room_they_have():
    assert shortened("short") == "short"
    assert shortened("shop.catalogue.jobs.fetch_page") == "…fetch_page"
    for text in ("x" * 100, "商品カタログの取り込みを開始する", f"shop.{'y' * 100}"):
        assert wide(shortened(text)) <= COLUMNS
        assert shortened(text).endswith("…")


def test_shares_fill_the_bar():
    assert shares({"succeeded": 3, "dead": 1}, 100) == [("dead", 0, 25), ("succeeded", 25, 75)]
    assert shares({}, 100) == []
