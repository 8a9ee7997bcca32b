"""The drawing of a workflow: steps → boxes and lines.  Pure; the template writes the SVG, without style attributes.

A step stands in the layer of its longest path from a first step, so every line leads onward.  With more steps than
MOST, those of one layer and job are one box with counts; with more such boxes than MOST, several layers are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from unicodedata import east_asian_width

#: More boxes than this are not readable.
MOST = 60
#: Size of a box, and the distance of two boxes along and across the direction of the lines.
WIDTH, HEIGHT = 190, 50
ALONG, ACROSS = 46, 16
MARGIN = 4
#: Columns of text in a box; a wide character has two.
COLUMNS = 22
#: A graph that is deeper than this and than it is broad goes down instead of to the right.
DEEP = 6


class Node(NamedTuple):
    """A step as the drawing needs it."""

    number: int
    label: str
    #: what many steps have in common: the name of their job.
    kind: str
    state: str
    #: the numbers of the steps before it, which are smaller than its own.
    after: Sequence[int]


@dataclass(slots=True)
class Box:
    """One step, or several.  Places are in the units of the drawing."""

    label: str
    kind: str
    layer: int
    #: numbers of its steps.
    steps: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    before: set[int] = field(default_factory=set)
    x: int = 0
    y: int = 0

    @property
    def state(self) -> str:
        """The state that all steps have, or the one that a person looks for first."""
        return self.states[0]

    @property
    def states(self) -> list[str]:
        """The states that its steps have, in the order of WORST_FIRST."""
        return [state for state in WORST_FIRST if self.counts[state]]


#: The label of a box whose steps have several.
MIXED = "…"
#: States in the order in which a person looks for them.
WORST_FIRST = ("dead", "expired", "deleted", "cancelled", "live", "waiting", "succeeded")


class Edge(NamedTuple):
    """A line from one box to one behind it: the `d` of an SVG path, and the state of the box that it leaves."""

    path: str
    state: str


@dataclass(frozen=True, slots=True)
class Drawing:
    boxes: list[Box]
    lines: list[Edge]
    width: int
    height: int
    #: several steps share a box.
    is_grouped: bool


def layers(nodes: Iterable[Node]) -> dict[int, int]:
    """Return the layer of each step: the number of steps on the longest path that leads to it."""
    found: dict[int, int] = {}
    for node in nodes:
        found[node.number] = 1 + max((found[before] for before in node.after), default=-1)
    return found


def drawing(nodes: Sequence[Node], most: int = MOST) -> Drawing:
    """Return the drawing of a workflow.  `nodes` are in the order of their numbers."""
    boxes = grouped(nodes, layers(nodes), most)
    is_grouped = len(boxes) < len(nodes)
    rows = ordered(boxes)
    is_down = len(rows) > DEEP and len(rows) > max(map(len, rows))
    width, height = place(rows, is_down=is_down)
    flat = [box for row in rows for box in row]
    return Drawing(flat, list(lines(boxes, is_down=is_down)), width, height, is_grouped)


def grouped(nodes: Sequence[Node], layer_of: Mapping[int, int], most: int) -> list[Box]:
    """Return the boxes: one for each step, or, if that is more than `most`, as many as fit."""
    if len(nodes) <= most:
        return boxes_of(nodes, {node.number: (layer_of[node.number], str(node.number)) for node in nodes})
    deepest = max(layer_of.values()) + 1
    size = 1
    while len({(layer_of[node.number] // size, node.kind) for node in nodes}) > most:
        if -(-deepest // size) <= most // 2:
            # Many jobs in few layers: one box for each layer.
            return boxes_of(nodes, {node.number: (layer_of[node.number] // size, "") for node in nodes})
        size *= 2
    return boxes_of(nodes, {node.number: (layer_of[node.number] // size, node.kind) for node in nodes})


def boxes_of(nodes: Sequence[Node], box_of_step: Mapping[int, tuple[int, str]]) -> list[Box]:
    """Return the boxes, with what is before each.  `box_of_step`: layer and kind of the box that a step is in."""
    places: dict[tuple[int, str], int] = {}
    box_of: dict[int, int] = {}
    boxes: list[Box] = []
    for node in nodes:
        at = box_of_step[node.number]
        index = places.setdefault(at, len(boxes))
        if index == len(boxes):
            boxes.append(Box(node.label, node.kind, at[0]))
        box = boxes[index]
        box.steps.append(node.number)
        box.counts[node.state] += 1
        if len(box.steps) > 1:
            box.kind = node.kind if node.kind == box.kind else MIXED
            box.label = box.kind
        box_of[node.number] = index
        for before in node.after:
            box.before.add(box_of[before])
    for index, box in enumerate(boxes):
        box.before = {each for each in box.before if each != index and boxes[each].layer < box.layer}
    return boxes


def ordered(boxes: Sequence[Box]) -> list[list[Box]]:
    """Return the boxes by layer, each beside those before it, so that few lines cross."""
    rows: dict[int, list[Box]] = {}
    for box in boxes:
        rows.setdefault(box.layer, []).append(box)
    places: dict[int, float] = {}
    index_of = {id(box): index for index, box in enumerate(boxes)}
    for _, row in sorted(rows.items()):
        means = {id(box): sum(places[each] for each in box.before) / len(box.before) for box in row if box.before}
        row.sort(key=lambda box: means.get(id(box), 0.5))
        for at, box in enumerate(row):
            places[index_of[id(box)]] = (at + 0.5) / len(row)
    return [row for _, row in sorted(rows.items())]


def place(rows: Sequence[Sequence[Box]], *, is_down: bool) -> tuple[int, int]:
    """Give each box its place; each layer is centred.  Returns the size of the drawing."""
    along, across = (HEIGHT, WIDTH) if is_down else (WIDTH, HEIGHT)
    broadest = max(map(len, rows), default=1) * (across + ACROSS) - ACROSS
    for number, row in enumerate(rows):
        first = MARGIN + (broadest - (len(row) * (across + ACROSS) - ACROSS)) // 2
        for at, box in enumerate(row):
            here = (MARGIN + number * (along + ALONG), first + at * (across + ACROSS))
            box.x, box.y = here[::-1] if is_down else here
    deep = len(rows) * (along + ALONG) - ALONG
    width, height = (broadest, deep) if is_down else (deep, broadest)
    return width + 2 * MARGIN, height + 2 * MARGIN


def lines(boxes: Sequence[Box], *, is_down: bool) -> Iterator[Edge]:
    """Yield a line for each pair of boxes that follow each other."""
    for box in boxes:
        for index in sorted(box.before):
            source = boxes[index]
            if is_down:
                x1, y1 = source.x + WIDTH // 2, source.y + HEIGHT
                x2, y2 = box.x + WIDTH // 2, box.y
                bend = (y2 - y1) // 2
                path = f"M{x1} {y1}C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2}"
            else:
                x1, y1 = source.x + WIDTH, source.y + HEIGHT // 2
                x2, y2 = box.x, box.y + HEIGHT // 2
                bend = (x2 - x1) // 2
                path = f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
            yield Edge(path, source.state)


def shortened(text: str, columns: int = COLUMNS, *, is_name: bool = True) -> str:
    """Return the text, cut so that it fits.  Of a dotted name the end says more than the beginning."""
    if wide(text) <= columns:
        return text
    last = text.rpartition(".")[2]
    if is_name and last and wide(last) < columns:
        return f"…{last}"
    kept = ""
    for character in text:
        if wide(kept + character) >= columns:
            break
        kept += character
    return f"{kept}…"


def wide(text: str) -> int:
    """Return the columns that a text takes."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def shares(counts: Mapping[str, int], width: int) -> list[tuple[str, float, float]]:
    """Return a bar of this width in parts: state, beginning and width of each, in the order of WORST_FIRST."""
    total = sum(counts.values())
    found, at = [], 0.0
    for state in WORST_FIRST:
        if counts.get(state):
            part = counts[state] / total * width
            found.append((state, round(at, 2), round(part, 2)))
            at += part
    return found
