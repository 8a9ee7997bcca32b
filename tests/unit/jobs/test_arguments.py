"""Arguments come back with the same type and value, or are refused by name."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Group, User
from django.db import models
from django.test import override_settings
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.exceptions import Discard, Fail, PayloadError
from django_jobs.serialization import arguments

VALID_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ZONES = st.sampled_from(
    [None, UTC, timezone(timedelta(hours=5, minutes=30)), ZoneInfo("Europe/Berlin"), ZoneInfo("UTC")]
)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | VALID_TEXT
    | st.floats(allow_nan=False, allow_infinity=False)
)
TYPED = (
    st.datetimes(timezones=ZONES)
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.uuids()
    | st.binary()
)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(VALID_TEXT | st.sampled_from(["$date", "$", "$tuple", "$dict"]), inner, max_size=4)
            | st.lists(inner, max_size=4).map(tuple)
        ),
        max_leaves=12,
    )


def typed(value: Any) -> Any:
    """The value with the type of everything in it: == alone takes True for 1 and 1 for 1.0."""
    if isinstance(value, dict):
        return ("dict", [(typed(key), typed(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return (type(value).__name__, [typed(item) for item in value])
    if isinstance(value, datetime | time):
        return (type(value).__name__, value.replace(tzinfo=None), value.fold, str(value.utcoffset()))
    return (type(value).__name__, repr(value))


class TestRoundTrips:
    @pytest.mark.accepts("R10", "P21", "G21")
    @given(st.lists(nested(PLAIN | TYPED), max_size=3), st.dictionaries(VALID_TEXT, nested(PLAIN | TYPED), max_size=3))
    def test_any_call_of_values_we_take_comes_back_as_it_was(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        loaded = arguments.load(arguments.dump(args, kwargs))
        assert typed(list(loaded)) == typed([args, kwargs])

    @given(nested(PLAIN | TYPED))
    def test_a_result_comes_back_as_it_was(self, value: Any) -> None:
        assert typed(arguments.load_value(arguments.dump_value(value))) == typed(value)

    @pytest.mark.parametrize(
        "value",
        [0, -0.0, 1e308, 5e-324, "", "\x00", "🐍", [], {}, (), [[]], [{}], b"\xff\x00", True],
        ids=repr,
    )
    def test_values_at_the_edges_come_back(self, value: Any) -> None:
        assert typed(arguments.load_value(arguments.dump_value(value))) == typed(value)

    def test_an_integer_of_any_size_comes_back(self) -> None:
        for value in (2**200, -(2**200), 2**50_000, -(2**50_000)):
            assert arguments.load_value(arguments.dump_value([value])) == [value]

    def test_a_time_zone_keeps_its_name_and_the_hour_that_exists_twice_its_side(self) -> None:
        first = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
        for value in (first, first.replace(fold=1)):
            (loaded,), _ = arguments.load(arguments.dump([value], {}))
            assert (loaded.tzinfo.key, loaded.fold, loaded.utcoffset()) == (
                "Europe/Berlin",
                value.fold,
                value.utcoffset(),
            )

    @pytest.mark.accepts("G13", "K09")
    def test_plain_json_is_stored_as_plain_json(self) -> None:
        assert arguments.dump((7,), {"copy": True}) == b'[[7],{"copy":true}]'

    def test_typed_values_are_stored_readably(self) -> None:
        value = [date(2026, 3, 29), Decimal("1.10"), UUID(int=7), timedelta(hours=1), (1,)]
        assert json.loads(arguments.dump(value, {}))[0] == [
            {"$date": "2026-03-29"},
            {"$decimal": "1.10"},
            {"$uuid": "00000000-0000-0000-0000-000000000007"},
            {"$timedelta": [0, 3600, 0]},
            {"$tuple": [1]},
        ]

    def test_a_dict_that_looks_like_a_typed_value_stays_a_dict(self) -> None:
        for value in ({"$date": "2026-03-29"}, {"$model": ["auth.user", "1"]}, {"$": 1, "x": {"$tuple": [1]}}):
            assert arguments.load(arguments.dump([value], value)) == ([value], value)


class Point(NamedTuple):
    x: int


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


class Text(str):
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Number(float): ...


class Rank(models.IntegerChoices):
    FIRST = 1, "first"


class TestSubclasses:
    @pytest.mark.parametrize(
        ("value", "plain"),
        [
            (Text("a"), "a"),
            (mark_safe("<b>"), "<b>"),
            (gettext_lazy("Yes"), "Yes"),
            (Rank.FIRST, 1),
            (Number(1.5), 1.5),
            (OrderedDict(a=1), {"a": 1}),
            (Counter("aa"), {"a": 2}),
            (Point(1), (1,)),
            ({Text("a"): [Number(1)]}, {"a": [1.0]}),
            (SimpleLazyObject(lambda: {"a": Point(1)}), {"a": (1,)}),
            ({1: "a", None: "b", False: "c", "1": "d"}, {1: "a", None: "b", False: "c", "1": "d"}),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_it_is_taken_as_the_plain_value_that_it_is(self, value: Any, plain: Any) -> None:
        (loaded,), _ = arguments.load(arguments.dump([value], {}))
        assert typed(loaded) == typed(plain)
        assert typed(arguments.load_value(arguments.dump_value(value))) == typed(plain)

    def test_equal_keys_of_two_types_are_two(self) -> None:
        assert arguments.canonical({1: "a"}) != arguments.canonical({True: "a"}) != arguments.canonical({"1": "a"})
        assert arguments.canonical({1: 0, "1": 1}) == arguments.canonical({"1": 1, 1: 0})


class TestRefusals:
    @pytest.mark.parametrize(
        "value",
        [
            math.nan,
            math.inf,
            -math.inf,
            Decimal("NaN"),
            Decimal("Infinity"),
            {1, 2},
            frozenset(),
            object(),
            bytearray(b"x"),
            complex(1, 2),
            {(1, 2): "a"},
            "\ud800",
            {"\udfff": 1},
            deep(33),
            range(3),
            len,
            ValueError("x"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_what_json_cannot_hold_is_refused_with_its_place(self, value: Any) -> None:
        with pytest.raises(PayloadError, match=r"kwargs\['items'\]\[3\]"):
            arguments.dump([], {"items": [1, 2, 3, value]})
        with pytest.raises(PayloadError, match=r"args\[1\]"):
            arguments.dump([0, value], {})

    def test_the_message_says_what_to_do(self) -> None:
        with pytest.raises(PayloadError, match=r"args\[0\] is of type builtins\.set.* Pass a sorted list"):
            arguments.dump([{1}], {})

    def test_thirty_two_levels_are_taken_and_one_more_is_not(self) -> None:
        assert arguments.load(arguments.dump([deep(32)], {})) == ([deep(32)], {})
        with pytest.raises(PayloadError, match="nested too deeply"):
            arguments.dump([deep(33)], {})

    def test_a_list_that_contains_itself_is_refused(self) -> None:
        loop: list[Any] = []
        loop.append(loop)
        with pytest.raises(PayloadError, match="contains itself"):
            arguments.dump([loop], {})

    @given(st.binary() | VALID_TEXT.map(str.encode) | st.sampled_from([b"[[],{}]", b'[[1],{"a":2}]']))
    def test_no_bytes_are_read_as_anything_but_a_call_or_an_error(self, data: bytes) -> None:
        try:
            args, kwargs = arguments.load(data)
        except PayloadError:
            return
        assert isinstance(args, list)
        assert isinstance(kwargs, dict)

    @pytest.mark.parametrize("data", [b"", b"null", b"[]", b"[[]]", b"[[],[]]", b"{}", b'[{"a":1},{}]', b"[" * 100_000])
    def test_stored_bytes_that_are_no_call_are_named(self, data: bytes) -> None:
        with pytest.raises(PayloadError, match="stored arguments"):
            arguments.load(data)

    @pytest.mark.parametrize(
        "stored",
        [
            '{"$date": "nonsense"}',
            '{"$nothing": 1}',
            '{"$tuple": 3}',
            '{"$int": "zz"}',
            '{"$datetime": [1]}',
            '{"$bytes": "%"}',
            '{"$model": ["no.model", "1"]}',
            '{"$model": 4}',
            '{"$decimal": "x"}',
            '{"$dict": [1]}',
        ],
    )
    def test_a_damaged_typed_value_is_a_payload_error(self, stored: str) -> None:
        with pytest.raises(PayloadError):
            arguments.load(f"[[{stored}],{{}}]".encode())


@pytest.mark.django_db
class TestModelInstances:
    def test_a_saved_instance_travels_as_a_reference_and_is_loaded_again(self) -> None:
        group = Group.objects.create(name="editors")
        data = arguments.dump([group], {"all": [group]})
        Group.objects.filter(pk=group.pk).update(name="writers")
        (loaded,), kwargs = arguments.load(data)
        assert (type(loaded), loaded.pk, loaded.name) == (Group, group.pk, "writers")
        assert kwargs["all"] == [group]
        assert b"editors" not in data
        assert arguments.needs_database(data)

    def test_a_lazy_user_is_taken_as_the_user_and_routers_see_its_class(self) -> None:
        user, seen = User.objects.create(username="ann"), []

        class Router:
            def db_for_write(self, model: type, **hints: Any) -> None:
                seen.append(model)

        with override_settings(DATABASE_ROUTERS=[Router()]):
            data = arguments.dump([SimpleLazyObject(lambda: user)], {})
        assert seen == [User]
        assert arguments.load(data) == ([user], {})

    def test_an_unsaved_instance_is_refused(self) -> None:
        told = r"args\[0\] is an unsaved instance of auth\.group.*save it first"
        with pytest.raises(PayloadError, match=told):
            arguments.dump([Group(name="new")], {})
        with pytest.raises(PayloadError, match="is an unsaved instance"):
            arguments.dump([Group(pk=5, name="new")], {})

    def test_a_row_that_is_gone_fails_the_job_or_discards_it_as_the_job_says(self) -> None:
        user = User.objects.create(username="ann")
        data = arguments.dump([user], {})
        user.delete()
        with pytest.raises(Fail, match=r"auth\.user with primary key \d+ does not exist any more"):
            arguments.load(data)
        with pytest.raises(Discard, match="does not exist any more"):
            arguments.load(data, on_missing="discard")
