"""The text of a traceback is the one that Python writes, also of places that are remembered."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest

from django_jobs.core import outcome
from django_jobs.core.outcome import formatted


def plain() -> None:
    raise ValueError("no")


def part_of_a_line() -> None:
    value: dict[str, Any] = {"a": {"b": None}}
    print(value["a"]["b"]["c"] + len([1, 2]))


def several_lines() -> None:
    plain_call = [
        1,
        2
        / int("0"),
    ]  # fmt: skip
    print(plain_call)


def calls_itself(times: int = 7) -> None:
    if times == 0:
        plain()
    calls_itself(times - 1)


def two_calls_of_one_line(times: int = 40) -> None:
    (lambda: two_calls_of_one_line(times - 1) if times else plain())()


def has_a_cause() -> None:
    try:
        plain()
    except ValueError as error:
        raise KeyError("behind") from error


def has_a_context() -> None:
    try:
        plain()
    except ValueError:
        raise KeyError("behind")  # noqa: B904


def hides_its_context() -> None:
    try:
        plain()
    except ValueError:
        raise KeyError("behind") from None


def has_notes() -> None:
    error = ValueError("no")
    error.add_note("one\ntwo")
    raise error


def is_a_group() -> None:
    raise ExceptionGroup("many", [ValueError("a"), KeyError("b")])


def has_bad_syntax() -> None:
    compile("a b", "somewhere.py", "exec")


def says_nothing() -> None:
    raise ValueError


def is_nested() -> None:
    class Nested(LookupError):
        pass

    raise Nested("one\n", 2)


def is_a_misspelling() -> None:
    tracebac.print_exc()  # type: ignore[name-defined]  # noqa: F821


def is_a_misspelled_attribute() -> None:
    traceback.format_excepti  # type: ignore[attr-defined]  # noqa: B018


def cannot_be_shown() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    raise Odd


def same_code(file: str) -> Callable[[], None]:
    """Code that is equal but for its file."""
    names: dict[str, Any] = {}
    exec(compile("def equal():\n    raise ValueError(1)\n", file, "exec"), names)
    found: Callable[[], None] = names["equal"]
    return found


CASES = [
    *(plain, part_of_a_line, several_lines, calls_itself, two_calls_of_one_line, has_a_cause, has_a_context),
    *(hides_its_context, has_notes, is_a_group, has_bad_syntax, cannot_be_shown),
    *(says_nothing, is_nested, is_a_misspelling, is_a_misspelled_attribute),
    *(same_code("one.py"), same_code("other.py")),
]


def raised(do: Callable[[], None]) -> BaseException:
    try:
        do()
    except BaseException as error:
        return error
    raise AssertionError


def as_python_says(error: BaseException) -> list[str]:
    return traceback.format_exception(type(error), error, error.__traceback__, limit=-outcome.FRAMES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_it_is_what_python_writes_the_first_time_and_later(case: Callable[[], None]) -> None:
    for _ in range(3):
        error = raised(case)
        assert formatted(error) == as_python_says(error)


def test_an_error_that_was_never_raised_has_one_too() -> None:
    assert formatted(ValueError("no")) == as_python_says(ValueError("no"))


def test_a_line_that_was_replaced_is_not_taken_for_the_one_at_its_place() -> None:
    """As template engines do, which show the line of the template."""
    error = raised(plain)
    formatted(error)
    first = error.__traceback__
    assert first is not None
    assert first.tb_next is not None
    other = TracebackType(None, first.tb_next.tb_frame, first.tb_next.tb_lasti, first.tb_next.tb_lineno - 1)
    assert formatted(error.with_traceback(other)) == as_python_says(error)


def test_code_that_was_loaded_again_is_not_taken_for_the_earlier_one(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "module.py"
    for text in ("def f():\n    raise ValueError('one')\n", "def f():\n    raise ValueError('other')\n"):
        file.write_text(text)
        names: dict[str, Any] = {}
        exec(compile(text, str(file), "exec"), names)
        assert "".join(formatted(raised(names["f"]))).count(text.splitlines()[1].strip()) == 1


def test_only_some_places_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "MOST_PLACES", 3)
    outcome._places.clear()
    for case in CASES:
        formatted(raised(case))
        assert len(outcome._places) <= 3
