"""Problems that last are logged once, although what meets them tries again every second."""

from __future__ import annotations

from math import inf
from time import monotonic


class Complaints:
    """What was logged and is not over.

    `again`: seconds after which the same problem is logged again.  Where calls that work come between those that fail,
    nobody can say when it is over."""

    def __init__(self, again: float = inf) -> None:
        self._again = again
        #: what it is about → the problem, and when it was logged (monotonic).
        self._known: dict[str, tuple[str, float]] = {}

    def is_new(self, problem: object, about: str = "") -> bool:
        """Note the problem.  Returns whether to log it: it is another than the last one, or that is old or over."""
        text, now = str(problem), monotonic()
        known, at = self._known.get(about, ("", -inf))
        if known == text and now - at < self._again:
            return False
        self._known[about] = text, now
        return True

    def is_over(self, about: str = "") -> None:
        """Note that it works: the same problem is new if it comes back."""
        self._known.pop(about, None)
