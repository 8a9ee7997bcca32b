"""How much of a test that could go on for ever: quick (`make quick`), usual (`make test`), long (`make survival`)."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

DOSES = ("quick", "usual", "long")
DOSE = os.environ.get("DOSE") or "usual"
if DOSE not in DOSES:
    raise ValueError(f"DOSE is {DOSE!r}: use one of {', '.join(DOSES)}.")


def dose(usual: T, *, long: T, quick: T | None = None) -> T:
    """What this run takes; without a word for quick, that takes the usual."""
    return {"quick": quick, "long": long}.get(DOSE) or usual
