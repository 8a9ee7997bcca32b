"""How much of a test that could go on for ever: quick (`make quick`), usual (`make test`), ci, or long: DOSE."""

from __future__ import annotations

import os
from typing import TypeVar

from tests.support.backends.missing import CI

T = TypeVar("T")

DOSES = ("quick", "usual", "ci", "long")
DOSE = os.environ.get("DOSE") or ("ci" if CI else "usual")
if DOSE not in DOSES:
    raise ValueError(f"DOSE is {DOSE!r}: use one of {', '.join(DOSES)}.")


def dose(usual: T, *, long: T, quick: T | None = None, ci: T | None = None) -> T:
    """What this run takes; without a word for quick or ci they take the usual."""
    return {"quick": quick, "ci": ci, "long": long}.get(DOSE) or usual
