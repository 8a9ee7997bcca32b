"""The console under django-unfold, whose templates are all its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.backends.missing import chromium, missing, only_in_ci

CONSOLE = Path(__file__).parents[1]
ROOT = CONSOLE.parents[2]
#: An admin site of one's own must be of that theme's class there; and it writes style into its pages itself.
NOT = "not own_has"


def again(*files: Path, select: str) -> None:
    """Run tests once more, in a process of their own: a theme is a matter of INSTALLED_APPS."""
    only_in_ci()
    if find_spec("unfold") is None:
        missing("django-unfold is missing: pip install --group test.")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "-k", select, *files],
        env={**os.environ, "STORES": "redis", "DJANGO_SETTINGS_MODULE": "tests.settings_with_unfold"},
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-5000:]
    assert " passed" in run.stdout


def test_pages_show_and_do_the_same_under_another_theme() -> None:
    names = (
        "pages/test_pages",
        "acting/test_actions",
        "pages/test_host_settings",
        "pages/test_schedules",
        "look/test_theme",
    )
    again(*[CONSOLE / f"{name}.py" for name in names], select=NOT)


@pytest.mark.browser
def test_pages_fit_their_screen_under_another_theme() -> None:
    chromium()  # without one every test of that run is skipped, and nothing was shown
    again(ROOT / "tests" / "browser" / "test_console_pages.py", select="typical and light")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_under_another_theme(scheme: str) -> None:
    chromium()
    again(ROOT / "tests" / "browser" / "test_console_axe.py", select=f"{scheme} and desktop")
