"""The console under django-unfold, whose templates are all its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.backends.missing import chromium, missing, only_in_ci

ROOT = Path(__file__).resolve().parents[4]
#: Each start of pytest costs a second and a half.
AGAIN = {
    "integration/console": ("pages/test_pages.py", "acting/test_actions.py", "look/test_theme.py"),
    "browser": ("test_console_pages.py", "test_console_axe.py::test_axe_finds_nothing[desktop]"),
}


@pytest.mark.browser
@pytest.mark.parametrize("folder", AGAIN)
def test_pages_show_and_do_the_same_under_another_theme(folder: str) -> None:
    """They fit their screen, too, and axe finds nothing.  A theme is a matter of INSTALLED_APPS, so of a process."""
    only_in_ci()
    chromium()  # without one the tests of the browser are skipped, and nothing was shown
    if find_spec("unfold") is None:
        missing("django-unfold is missing: pip install --group test.")
    files = [ROOT / "tests" / folder / name for name in AGAIN[folder]]
    again = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short",
         "-k", "not no_data and not hostile and not phone", *files],
        env={**os.environ, "STORES": "redis", "DJANGO_SETTINGS_MODULE": "tests.settings_with_unfold"},
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=580, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stdout[-5000:]
    assert " passed" in again.stdout
