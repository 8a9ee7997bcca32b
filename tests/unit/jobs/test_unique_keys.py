"""Unique keys: golden vectors, so that a new version meets the locks of the old one."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.core.definition import JobDefinition
from django_jobs.enqueueing.keys import digest_of_arguments, digest_of_key, limit_key
from django_jobs.exceptions import InvalidArguments, PayloadError
from django_jobs.serialization.arguments import canonical


def receipt(order_id: Any, copy: Any = False, *extra: Any, note: Any = None, **more: Any) -> None: ...


def marker(value: Any, missing: Any = object) -> None: ...


DEFINITION = JobDefinition(receipt, name="shop.receipt")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("ab$é"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab$"), inner, max_size=3),
    max_leaves=6,
)


def digest(*args: Any, **kwargs: Any) -> str:
    return digest_of_arguments(DEFINITION, args, kwargs)


class TestGoldenVectors:
    @pytest.mark.parametrize(
        ("args", "kwargs", "expected"),
        [
            ((7,), {}, "db35c2654188fef41e80892c2d87aec0d707a3fdc10789fc3de2c7053640ee3c"),
            (("7",), {}, "4734dcf0a990d686152ff23a65a04485d8655ba713c2dcadfcc04ef7627131f5"),
            ((7.0,), {}, "04a8d418c70833ce52aade2813637afbaad24f483d418941f4e977cc44bc3991"),
            ((True,), {}, "3ecc53cc8f1c6721828d51a4d33f3f81eb821f9e831f9a60cd87ad685d6cb094"),
            (
                (7,),
                {"note": "Grüße", "z": [1, {"b": 2, "a": None}]},
                "ce0888d6333bf1a3eb835fde1f61a1708c6d35a6e79d49e542b668e686ca2078",
            ),
        ],
    )
    @pytest.mark.accepts("G34")
    def test_arguments(self, args: Any, kwargs: Any, expected: str) -> None:
        assert digest(*args, **kwargs) == expected

    @pytest.mark.parametrize(
        ("key", "expected"),
        [
            ("a", "2860ce8ef0302cd1a7bd729e2976f56a5f792760023657075e39e97a943722a8"),
            ({"b": 1, "a": [1.5]}, "125541820082db34a144d889b9dcbcd8833dbab55650793c3e0fc9dc5188df1c"),
            (None, "572d0b26a5566303012fd6d672d44ab85f70c127116d613a90ddfff8e7b3c39b"),
        ],
    )
    @pytest.mark.accepts("G34")
    def test_keys(self, key: Any, expected: str) -> None:
        assert digest_of_key(DEFINITION, key) == expected


class TestSameAndDifferent:
    def test_how_arguments_are_passed_does_not_matter(self) -> None:
        assert digest(7, True, note=1) == digest(note=1, copy=True, order_id=7) == digest(7, note=1, copy=True)

    def test_a_default_counts_as_if_it_had_been_passed(self) -> None:
        assert digest(7) == digest(7, False) == digest(order_id=7, note=None)

    def test_the_order_of_keys_does_not_matter_at_any_depth(self) -> None:
        assert digest({"a": 1, "b": {"c": 1, "$d": 2}}) == digest({"b": {"$d": 2, "c": 1}, "a": 1})

    @pytest.mark.accepts("G31")
    def test_values_that_python_calls_equal_differ(self) -> None:
        digests = {digest(value) for value in (1, 1.0, "1", True, [1], (1,), {"1": 1})}
        assert len(digests) == 7

    def test_unicode_is_not_folded(self) -> None:
        assert digest(unicodedata.normalize("NFC", "é")) != digest(unicodedata.normalize("NFD", "é"))

    def test_another_job_has_other_keys(self) -> None:
        other = JobDefinition(receipt, name="shop.other")
        assert digest(7) != digest_of_arguments(other, (7,), {})
        assert digest_of_key(DEFINITION, 7) != digest_of_key(other, 7)

    def test_a_key_of_the_caller_is_never_the_key_of_arguments(self) -> None:
        assert digest_of_key(DEFINITION, {"order_id": 7}) != digest(7)

    @pytest.mark.accepts("G31")
    def test_only_the_arguments_named_matter(self) -> None:
        some = digest_of_arguments(DEFINITION, (7, True), {"note": "x"}, ["order_id"])
        assert some == digest_of_arguments(DEFINITION, (7, False), {"z": 3}, ["order_id"])
        assert some != digest_of_arguments(DEFINITION, (8, True), {"note": "x"}, ["order_id"])
        with pytest.raises(InvalidArguments, match="unique_on names 'customer'"):
            digest_of_arguments(DEFINITION, (7,), {}, ["customer"])

    def test_a_default_that_cannot_be_stored_is_left_out(self) -> None:
        definition = JobDefinition(marker, name="shop.marker")
        assert digest_of_arguments(definition, (1,), {}) == digest_of_arguments(definition, (), {"value": 1})

    def test_a_key_that_is_no_json_is_refused(self) -> None:
        with pytest.raises(PayloadError, match="unique key"):
            digest_of_key(DEFINITION, {1, 2})

    @given(VALUES, VALUES)
    def test_equal_json_and_equal_keys_are_the_same_thing(self, one: Any, other: Any) -> None:
        same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
        assert (canonical(one) == canonical(other)) is same


class TestLimitKeys:
    def test_all_jobs_of_a_type_share_one_limit_by_default(self) -> None:
        assert limit_key(JobDefinition(receipt, name="r", max_concurrency=2), (7,), {}) == "r"

    def test_a_parameter_makes_one_limit_per_value(self) -> None:
        definition = JobDefinition(receipt, name="r", max_concurrency=2, concurrency_key="order_id")
        assert limit_key(definition, (7,), {}) == limit_key(definition, (), {"order_id": 7}) == "r:7"
        assert limit_key(definition, ("7",), {}) == 'r:"7"'

    def test_a_callable_makes_one_limit_per_answer(self) -> None:
        definition = JobDefinition(
            receipt, name="r", max_concurrency=2, concurrency_key=lambda order_id, **_: order_id % 2
        )
        assert limit_key(definition, (7,), {"note": 1}) == "r:1"

    def test_no_value_puts_a_separator_or_a_long_text_into_a_key(self) -> None:
        definition = JobDefinition(receipt, name="r", max_concurrency=2, concurrency_key="order_id")
        assert "\x00" not in limit_key(definition, ("a\x00b",), {})
        assert len(limit_key(definition, ("x" * 10_000,), {})) < 100
