"""What the audit says of one place."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

Verdict = Literal["works", "changes", "rewrite", "look"]
#: What people read.
WORDS: dict[Verdict, str] = {
    "works": "works as it is",
    "changes": "changes",
    "rewrite": "must be rewritten",
    "look": "look at it",
}


class CallSite(NamedTuple):
    """One place of a project: "works" as it is, "changes" what it does, must be "rewrite"-n, or "look" at it."""

    verdict: Verdict
    path: Path
    line: int
    #: the code, in short.
    what: str
    #: the reason, or what to write; "" if it works.
    why: str = ""
