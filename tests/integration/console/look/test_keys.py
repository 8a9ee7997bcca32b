"""Keyboard shortcuts: each key once, each with a link, and all in the documents.  What they do is a browser test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client

from django_jobs.admin.common.navigation import SHORTCUTS
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE

PAGE = Path(__file__).parents[4] / "docs" / "howto" / "admin.md"


def test_no_key_has_two_meanings() -> None:
    assert len(set(SHORTCUTS.values())) == len(SHORTCUTS)
    assert all(re.fullmatch("[a-z]", key) for key in SHORTCUTS.values())


@pytest.mark.django_db
@pytest.mark.parametrize("path", [BASE, f"{BASE}jobs/dead/", "/admin/django_jobs/"])
def test_each_key_has_its_link_and_is_in_the_list(path: str, console_store: Store, root: Client) -> None:
    page = root.get(path).text
    assert "django_jobs/keys.js" in page
    assert set(re.findall(r'data-jobs-key="(\w)"', page)) == set(SHORTCUTS.values())
    assert set(re.findall(r"<kbd>g</kbd> <kbd>(\w)</kbd>", page)) == set(SHORTCUTS.values())


def test_the_documents_have_every_key() -> None:
    documented = PAGE.read_text()
    assert set(re.findall(r"`g` `(\w)`", documented)) == set(SHORTCUTS.values())
    for key in ("?", "/", "j", "k", "x"):
        assert f"`{key}`" in documented
