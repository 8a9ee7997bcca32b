"""Every promise is shown by a test or says why not, and the page that lists them is up to date."""

from __future__ import annotations

import tomllib

from tests.docs.pages import ROOT
from tools.acceptance import SOURCE, TARGET, marks, page

PROMISES = tomllib.loads(SOURCE.read_text())
MARKS = marks(ROOT / "tests")


def test_every_promise_has_a_test_or_a_reason() -> None:
    assert [id for id, entry in PROMISES.items() if id not in MARKS and not entry.get("reason")] == []


def test_a_reason_is_given_only_where_there_is_no_test() -> None:
    assert [id for id, entry in PROMISES.items() if id in MARKS and "reason" in entry] == []


def test_every_promise_says_how_it_is_kept() -> None:
    assert [id for id, entry in PROMISES.items() if not (entry["promise"] and entry["how"])] == []


def test_the_page_is_up_to_date() -> None:
    assert TARGET.read_text() == page(PROMISES, MARKS), "run `make docs`"
