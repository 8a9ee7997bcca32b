"""The query: every text is read or refused with a place, what is written is read again, and values have types."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.browse import Match
from django_jobs.browse.query.parsing import FIELDS, Term, parse, written
from django_jobs.browse.query.terms import fulfils, same
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import Attempt, Job, JobInfo, Options, State
from django_jobs.exceptions import InvalidQuery
from django_jobs.serialization.arguments import dump
from django_jobs.serialization.record import encode

#: Texts that look like queries, more often than chance makes them.
pieces = st.sampled_from(
    [
        '"',
        "\\",
        " ",
        ":",
        "=",
        "arg.",
        ".",
        "{",
        "[",
        "4",
        "-",
        "name:",
        "state:dead",
        "tag:a",
        "arg.x=1",
        "NaN",
        "1e999",
        "\0",
    ]
)
texts = st.one_of(st.text(max_size=60), st.lists(pieces, max_size=12).map("".join))
chars = st.characters(blacklist_categories=("Cs",))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(chars, max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(chars, max_size=5), inner, max_size=3),
    max_leaves=6,
)
words = st.text(chars, min_size=1, max_size=20)
terms = st.one_of(
    st.tuples(st.sampled_from(("tag", "scope", "worker", "error", "queue")), words).map(lambda each: Term(*each)),
    st.builds(
        lambda path, value: Term("arg", json.dumps(value, ensure_ascii=False, separators=(",", ":")), tuple(path)),
        st.lists(st.from_regex(r"\A[a-z_0-9]{1,8}\Z"), min_size=1, max_size=3),
        json_values,
    ),
    words.map(lambda text: Term("text", text)),
)


@given(texts)
def test_every_text_is_read_or_refused_with_its_place(text: str) -> None:
    refused: InvalidQuery | None = None
    try:
        found = parse(text)
    except InvalidQuery as error:
        refused = error
    if refused is None:
        assert parse(" ".join(map(str, found))) == found
    else:
        assert 0 <= refused.at <= len(text), refused
        assert f"At character {refused.at + 1}" in str(refused)


@given(st.lists(terms, max_size=5, unique_by=lambda term: term.field if term.field in FIELDS else object()))
def test_what_is_written_is_read_again(given_terms: list[Term]) -> None:
    assert parse(" ".join(map(str, given_terms))) == tuple(dict.fromkeys(given_terms))


@given(st.text(chars, max_size=40))
def test_a_text_is_searched_for_as_it_stands(text: str) -> None:
    assert parse(written(text)) == ((Term("text", text),) if text else ())


@pytest.mark.parametrize(
    ("text", "at", "why"),
    [
        (
            "customer:42",
            1,
            r'no field .customer.\. The fields are name, .* "customer:42"; for a tag, write tag:customer:42$',
        ),
        ("state:deadly", 7, "The states are .*dead"),
        ("name:", 6, "name: has no value"),
        ("a state:dead state:retry", 14, "only one state"),
        ("arg.customer_id=fortytwo", 17, r'not JSON\. .* arg\.customer_id="fortytwo"$'),
        ("arg.customer_id=", 17, "not JSON"),
        ("arg.customer_id:42", 1, "arg.NAME=VALUE"),
        ("arg.x=NaN", 7, "not JSON"),
        ("arg.x=42x", 7, "not JSON"),
        ("arg.x=[1e400]", 7, "not JSON"),
        ("arg.x=" + "[" * 1_500, 7, "not JSON"),
        ("arg.x=" + "9" * 1_900 + "e9 y:", 7, "not JSON"),
        ("tag:a before:yesterday", 14, "before:2026-01-31"),
        ("after:0001-01-01", 7, "is not a time"),
        ('name:"shop', 6, "does not end"),
        ("release:", 9, "release: has no value"),
        (r'id:"\ud800"', 1, "half a surrogate"),
        (r'arg.x=["\ud800"]', 1, "half a surrogate"),
        ("x" * 2_001, 2_001, "at most 2000"),
    ],
)
def test_what_cannot_be_read_says_where_and_what_to_do(text: str, at: int, why: str) -> None:
    with pytest.raises(InvalidQuery, match=rf"At character {at} .*{why}"):
        parse(text)


def test_words_that_stand_together_are_one_text() -> None:
    assert [str(term) for term in parse('connection  reset tag:a by peer "by: x"')] == [
        '"connection  reset"', "tag:a", '"by peer"', '"by: x"',
    ]  # fmt: skip
    assert parse("12:30 http//x a=b") == (Term("text", "12:30 http//x a=b"),)


def order(customer_id: int, note: str = "", *, where: Any = None) -> None:
    """A job."""


def info(*args: Any, name: str = "shop.order", state: State = State.DEAD, **kwargs: Any) -> JobInfo:
    options = Options(tags="eu", scope="acme", sensitive="secret")
    job = Job("id1", "default", name, dump(args, kwargs), 1_700_000_000_000, options)
    last = Attempt(1, "failed", 5, error_type="shop.errors.Declined", error="card 42 declined", worker="web-1")
    return JobInfo("id1", "default", encode(job), state, at=1_790_000_000_000, attempts=(last,))


@pytest.fixture(autouse=True)
def _known(request: pytest.FixtureRequest) -> Any:
    registry.register(JobDefinition(order, name="shop.order"))
    yield
    registry.unregister("shop.order")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("arg.customer_id=42", True),
        ("arg.customer_id=420", False),
        ("arg.customer_id=4", False),
        ('arg.customer_id="42"', False),
        ("arg.customer_id=42.0", True),
        ('arg.note="42"', True),
        ("arg.note=42", False),
        ("arg.where.city.1=true", True),
        ("arg.where.city.1=1", False),
        ("arg.where.city.9=1", False),
        ('arg.where={"city":["x",true]}', True),
        ('arg.where={"city":["x",1]}', False),
        ("arg.wher=null", False),
        ("arg.customer_id=42 tag:us", False),
        ("arg.customer_id=42 tag:eu scope:acme error:Declined worker:web-1 state:dead declined", True),
        ("error:shop.errors.Declined", True),
        ("error:Decl", False),
        ("error:builtins.Declined", False),
        ("scope:acm", False),
        ("after:2026-09-21 before:2026-09-22", True),
        ("before:2026-09-21", False),
        ("id:id", False),
        ("name:shop.order queue:default id:id1", True),
    ],
)
def test_a_job_is_matched_exactly_and_by_type(query: str, found: bool) -> None:
    job = info(42, "42", where={"city": ["x", True]})
    assert fulfils(job, parse(query)) is found


def test_positional_arguments_of_an_unknown_type_are_not_guessed() -> None:
    assert fulfils(info(42, customer=7, name="shop.gone"), parse("arg.customer=7"))
    assert not fulfils(info(42, name="shop.gone"), parse("arg.customer_id=42"))


def test_what_is_hidden_is_not_found() -> None:
    job = info(42, secret="s3cret")
    for text in ('arg.secret="s3cret"', 'arg.secret="•••"', "s3cret"):
        assert not fulfils(job, parse(text)), text
    assert not fulfils(job, parse("arg.customer_id=42"), arguments=False)


def test_the_time_does_not_tell_which_guess_of_a_hidden_value_is_right() -> None:
    """The time is counted in bytecode instructions of the package: others may run in between."""
    job, counts = info(42, secret="s3cret"), Counter[str]()

    def count(guess: str) -> Callable[..., Any]:
        def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
            frame.f_trace_opcodes = frame.f_globals["__name__"].startswith("django_jobs.")
            counts[guess] += event == "opcode"
            return trace

        return trace

    before, guesses = sys.gettrace(), ("s3cret", "s3cre7", "s", "s3cret and more")
    for guess in guesses * 2:
        counts[guess] = 0  # the first round fills caches
        terms = parse(f'arg.secret="{guess}"')
        sys.settrace(count(guess))
        try:
            fulfils(job, terms)
        finally:
            sys.settrace(before)
    assert len(set(counts.values())) == 1, counts
    assert counts["s3cret"] > 100


@given(json_values, json_values)
def test_values_are_the_same_if_their_json_is(one: Any, other: Any) -> None:
    assert same(one, one)
    if same(one, other):
        assert one == other
        assert isinstance(one, bool) == isinstance(other, bool)


@pytest.mark.parametrize(
    ("signature", "name", "may"),
    [
        ("shop.errors.Declined: card … declined", "Declined", True),
        ("shop.errors.Declined: card … declined", "shop.errors.Declined", True),
        ("shop.errors.Declined", "Decl", False),
        ("ValueError: …", "builtins.ValueError", True),
        ("…", "Declined", True),
        ("killed", "killed", True),
    ],
)
def test_a_group_of_failed_jobs_is_read_if_it_may_have_the_error(signature: str, name: str, may: bool) -> None:
    assert Match().asked(f"error:{name}", State.DEAD).accepts_error(signature) is may
