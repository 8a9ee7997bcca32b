"""Problems that last are logged once, although what meets them tries again every second."""

from __future__ import annotations


class Complaints:
    """What was logged and is not over."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def is_new(self, problem: object, about: str = "") -> bool:
        """Note the problem.  Returns whether to log it: it is another than the last one, or the last one was over."""
        text = str(problem)
        if self._known.get(about) == text:
            return False
        self._known[about] = text
        return True

    def is_over(self, about: str = "") -> None:
        """Note that it works: the same problem is new if it comes back."""
        self._known.pop(about, None)
