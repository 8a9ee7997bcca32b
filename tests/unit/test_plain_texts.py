"""The texts that users read: numbers agree with nouns, a sentence has one full stop, one thing has one word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import django_jobs
from django_jobs.formatting import counted, sentence

PACKAGE = Path(django_jobs.__file__).parent
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if "migrations" not in path.parts]
#: What the package counts.
NOUNS = (
    "argument|attempt|byte|claim|field|id|job|job_id|key|lane|lease|match|place|process|queue|receiver|record|replica|"
    "row|schedule|second|signal|slot|task|thread|time|token|worker"
)
PLURAL = rf"\s(?:[a-z]+ )?(?:{NOUNS})e?s\b"
#: Names of values that end a sentence of somebody else, with or without its full stop.
OTHERS = {"error", "reason", "text", "why", "wrong"}
#: Words of the code or of nobody: users read "dead" and "maintenance process".
JARGON = r"\b(?:bur(?:y|ied)|poison\w*|clerks?|stewards?|doubts?)\b"


def test_a_number_and_its_noun_agree() -> None:
    assert [counted(n, "job") for n in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]


@pytest.mark.parametrize("text", ["it is disabled", "it is disabled.", ValueError("it is disabled. ")])
def test_a_sentence_has_one_full_stop(text: object) -> None:
    assert sentence(text) == "it is disabled."


def test_no_text_puts_a_number_before_a_fixed_plural() -> None:
    assert [text for text in all_texts() if re.search(r"(?:‹n›|%d|%s|%\(n\)[ds])" + PLURAL, text)] == []


def test_no_text_adds_a_full_stop_to_the_sentence_of_another() -> None:
    assert [text for text in all_texts() if re.search(r"‹other›\.(?:\s|$)", text)] == []


def test_texts_use_the_words_of_the_documentation() -> None:
    assert [text for text in all_texts() if " " in text and re.search(JARGON, text)] == []


@cache
def all_texts() -> list[str]:
    return [said(each) for each in texts()]


def texts() -> Iterator[ast.expr]:
    """Yield the string constants and f-strings of the package, without docstrings and texts with a plural form."""
    for path in FILES:
        tree = ast.parse(path.read_text())
        left_out: set[ast.AST] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                left_out.add(node.value)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "").startswith("ngettext"):
                left_out.update(node.args)
            elif isinstance(node, ast.JoinedStr):
                left_out.update(part for part in ast.walk(node) if part is not node)
        for node in ast.walk(tree):
            if node in left_out:
                continue
            if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                yield node


def said(node: ast.expr) -> str:
    """Return the text, with ‹n› for a value, ‹other› for another sentence, and ‹› for names and constants."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.JoinedStr)
    return "".join(_value(part) if isinstance(part, ast.FormattedValue) else said(part) for part in node.values)


def _value(part: ast.FormattedValue) -> str:
    name = getattr(part.value, "id", "")
    called = getattr(getattr(part.value, "func", None), "id", "")
    if name in OTHERS:
        return "‹other›"
    # A constant such as MAX_BATCH is never 1.
    return "‹›" if part.conversion == ord("r") or name.isupper() or called in {"counted", "sentence"} else "‹n›"
