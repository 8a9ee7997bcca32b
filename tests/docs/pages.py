"""The documents and what is in them: code blocks and links."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """One fenced block; `line` is that of its first line of code."""

    language: str
    code: str
    line: int


def blocks(page: Path, language: str) -> list[Block]:
    """The blocks of that language, in order."""
    text = page.read_text()
    found = [Block(m[1], m[2], text.count("\n", 0, m.start()) + 2) for m in _FENCE.finditer(text)]
    return [block for block in found if block.language == language]


def module_of(page: Path, name: str) -> ModuleType:
    """The Python of the page but for its settings, as a module that can be imported by this name."""
    module = ModuleType(name)
    for block in blocks(page, "python"):
        if not block.code.startswith("# settings.py"):
            exec(block.code, module.__dict__)
    sys.modules[name] = module
    return module


def links(page: Path) -> list[str]:
    """Where the page's links and pictures lead, code blocks left out."""
    return [first or second for first, second in _LINK.findall(_FENCE.sub("", page.read_text()))]


def name(page: Path) -> str:
    """For test ids: the path under the project."""
    return page.relative_to(ROOT).as_posix()


def column(page: str, heading: str) -> set[str]:
    """The `code` words in the first column of all tables of docs/`page` whose first heading is `heading`."""
    found: set[str] = set()
    inside = False
    for line in (ROOT / "docs" / page).read_text().splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith(f"| {heading} |"):
            inside = True
        elif inside:
            found |= set(re.findall(r"`([^`]+)`", line.split("|")[1]))
    return found
