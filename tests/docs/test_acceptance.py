"""Every promise is shown by a test of its own or answered otherwise, with the reason; the page is up to date."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tools.acceptance import SOURCE, TARGET, break_of, marks, page

PROMISES = tomllib.loads(SOURCE.read_text())


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """The marks in all tests.  Parsing every file takes seconds, so it is not done at import, in every process."""
    return marks(ROOT / "tests")


def test_every_promise_is_shown_by_a_test_or_answered_otherwise(found: dict[str, list[str]]) -> None:
    assert [id for id, entry in PROMISES.items() if id not in found and not entry.get("otherwise")] == []


def test_every_promise_has_a_break_that_a_test_of_its_own_notices(found: dict[str, list[str]]) -> None:
    """`make acceptance` runs the tests; this sees that each row has one."""
    for id, entry in PROMISES.items():
        try:
            assert break_of(entry, found.get(id, [])) is not None or len(entry["unbreakable"]) > 20, id
        except (ValueError, FileNotFoundError) as error:
            pytest.fail(f"{id}: {error}")


def test_another_answer_says_why() -> None:
    assert [
        id for id, entry in PROMISES.items() if len(entry.get("otherwise", "a reason is longer than this")) < 20
    ] == []


CLAIMS = {
    "on a class": """
@pytest.mark.accepts("G01")
class TestAll:
    def test_something_else(self): ...
""",
    "on a file": """
pytestmark = pytest.mark.accepts("G01")
def test_something_else(): ...
""",
    "on a file, in a list": """
pytestmark = [pytest.mark.redis, pytest.mark.accepts("G01")]
def test_something_else(): ...
""",
    "on a helper": """
@pytest.mark.accepts("G01")
def helper(): ...
def test_something_else(): ...
""",
    "by another name": """
proves = pytest.mark.accepts("G01")
@proves
def test_something_else(): ...
""",
    "of everything": """
@pytest.mark.accepts("G01", "G02", "G03", "G04", "G05", "G06", "G07", "G08")
def test_something_else(): ...
""",
}


@pytest.mark.parametrize("where", CLAIMS)
def test_a_promise_is_claimed_by_single_tests_only(tmp_path: Path, where: str) -> None:
    (tmp_path / "test_it.py").write_text(CLAIMS[where])
    with pytest.raises(SystemExit, match=r"test_it\.py"):
        marks(tmp_path)


def test_a_mark_on_a_test_is_a_claim_of_that_test(tmp_path: Path) -> None:
    text = """
class TestIt:
    @pytest.mark.accepts("G01", "G02")
    def test_one(self): ...
    def test_other(self): ...
"""
    (tmp_path / "test_it.py").write_text(text)
    assert marks(tmp_path) == {"G01": ["test_it.py::TestIt::test_one"], "G02": ["test_it.py::TestIt::test_one"]}


def test_every_promise_says_how_it_is_kept() -> None:
    assert [id for id, entry in PROMISES.items() if not (entry["promise"] and entry["how"])] == []


def test_the_page_is_up_to_date(found: dict[str, list[str]]) -> None:
    assert TARGET.read_text() == page(PROMISES, found), "run `make docs`"
