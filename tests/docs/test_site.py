"""The documents are a site that builds without a warning, and the README's links lead to its pages."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, links
from tests.support.backends.missing import missing


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    if not all(importlib.util.find_spec(name) for name in ("sphinx", "furo", "myst_parser")):
        missing("Sphinx, furo and myst-parser are not installed: pip install --group site.")
    folder = tmp_path_factory.mktemp("site")
    # As `make site` builds it, in a process of its own: the settings are those of docs/conf.py.
    environment = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-b", "html", "docs", str(folder)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_of_the_documents_is_a_page_of_the_site(site: Path) -> None:
    docs = ROOT / "docs"
    pages = [page.relative_to(docs).with_suffix(".html") for page in PAGES if page.is_relative_to(docs)]
    assert [str(page) for page in pages if not (site / page).is_file()] == []


def test_the_links_of_the_readme_lead_to_pages_of_the_site(site: Path) -> None:
    base = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Documentation"]
    inside = [link.removeprefix(base).split("#")[0] for link in links(ROOT / "README.md") if link.startswith(base)]
    assert len(inside) > 5
    assert [link for link in inside if not (site / link).is_file()] == []


def test_the_site_can_be_searched_and_has_a_light_and_a_dark_theme(site: Path) -> None:
    assert (site / "searchindex.js").stat().st_size > 10_000
    assert "[data-theme=dark]" in (site / "_static" / "styles" / "furo.css").read_text().replace('"', "")
    assert "theme-toggle" in (site / "index.html").read_text()


@pytest.mark.accepts("K32")
def test_the_reference_shows_every_public_name_with_its_docstring(site: Path) -> None:
    import django_jobs
    from django_jobs import exceptions

    page = (site / "reference" / "api.html").read_text()
    errors = {name for name, value in vars(exceptions).items() if isinstance(value, type)}
    for name in set(django_jobs.__all__) - {"PREVIOUS"}:
        home = "django_jobs.exceptions" if name in errors else "django_jobs"
        assert f'id="{home}.{name}"' in page, name
