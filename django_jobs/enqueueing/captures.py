"""Test transactions: does a commit come that an eager job can wait for?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.core.signals import setting_changed
from django.db import DEFAULT_DB_ALIAS, connections

from django_jobs.conf import raw_setting

#: The aliases whose commit callbacks a test captures now, once for each `with` block.
_captured: list[str] = []


def in_test_case(alias: str) -> bool:
    """Return whether the open transaction of this thread belongs to a TestCase (or to pytest-django's `db`), which
    rolls it back."""
    return any(getattr(block, "_from_testcase", False) for block in connections[alias].atomic_blocks)


def never_commits(alias: str) -> bool:
    """Return the same, unless a captureOnCommitCallbacks() block stands for the commit."""
    return in_test_case(alias) and alias not in _captured


def follow_settings() -> None:
    """Watch the test cases of this process while EAGER is on, also if a test itself sets it."""
    if "pytest" in sys.modules:  # a fixture of pytest-django has the method before a test can set EAGER
        _watch()
    _watch_if_eager()
    setting_changed.connect(_watch_if_eager)


def _watch_if_eager(**_: Any) -> None:
    raw = raw_setting()
    if isinstance(raw, Mapping) and raw.get("EAGER"):
        _watch()


def _watch() -> None:
    """Wrap TestCase.captureOnCommitCallbacks, because Django leaves no trace of a block that is open.  Called twice, it
    changes nothing."""
    from django.test import TestCase

    original: Callable[..., Any] = vars(TestCase)["captureOnCommitCallbacks"].__func__
    if getattr(original, "is_watched", False):
        return

    @contextmanager
    def captureOnCommitCallbacks(
        cls: type[TestCase], *, using: str = DEFAULT_DB_ALIAS, execute: bool = False
    ) -> Iterator[list[Callable[[], Any]]]:
        # Callbacks are called when the inner block has ended: what they enqueue waits for no commit.
        with original(cls, using=using, execute=execute) as callbacks:
            _captured.append(using)
            try:
                yield callbacks
            finally:
                _captured.remove(using)

    captureOnCommitCallbacks.__doc__ = original.__doc__
    captureOnCommitCallbacks.is_watched = True  # type: ignore[attr-defined]
    TestCase.captureOnCommitCallbacks = classmethod(captureOnCommitCallbacks)  # type: ignore[assignment]
