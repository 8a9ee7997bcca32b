"""How scripts are put together and sent."""

from __future__ import annotations

import re

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.stores.redis.connection import scripts, thread_connection

ARGUMENT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
)


@given(
    keys=st.lists(st.text("abc{}:", min_size=1), max_size=thread_connection.MOST_KEYS + 2),
    args=st.lists(ARGUMENT, min_size=1, max_size=9),
)
def test_a_call_is_packed_as_redis_py_packs_it(keys: list[str], args: list[str | bytes | int | float]) -> None:
    """With the beginning that is kept, and with one that is not."""
    connection, script = redis.Connection(), scripts.load("begin")
    expected = b"".join(connection.pack_command(b"EVALSHA", script.sha, len(keys), *keys, *args))
    for _ in range(2):
        assert thread_connection.packed_call(script, keys, args) == expected


@pytest.mark.parametrize("short", [False, True], ids=["full", "short"])
@pytest.mark.parametrize("name", scripts.names())
def test_a_script_has_no_function_and_no_key_that_it_does_not_use(name: str, short: bool) -> None:
    script = scripts.load(name, short=short)
    code = re.sub(r"--[^\n]*", "", script.source.decode())
    functions = re.findall(r"^ *(?:local )?function (\w+)", code, re.M)
    assert [one for one in functions if len(re.findall(rf"\b{one}\b", code)) == 1] == []
    _, rest = code.split("\n", 1)
    if "KEYS" not in rest:
        assert [key for key in script.keys if not re.search(rf"\b{key}\b", rest)] == []


def test_each_form_of_a_script_is_put_together_once_however_it_is_asked_for() -> None:
    assert scripts.load("claim") is scripts.load("claim", short=False)
    assert scripts.load("claim", short=True) is scripts.load("claim", short=True)


def test_what_looks_like_a_function_of_a_library_on_demand_is_left_alone() -> None:
    code = "-- lock\nlocal a = {lock = 'lock \\' lock', b = x.lock}\nlock(a)\nlock.b(relock)"
    with pytest.raises(ValueError, match=r"`lock` is a function of a library on demand"):
        scripts._called({"lock": "library_1()"}, code)
    code = code.replace("{lock", "{['lock']")
    assert scripts._called({"lock": "library_1()"}, code) == (
        "-- lock\nlocal a = {['lock'] = 'lock \\' lock', b = x.lock}\nlibrary_1().lock(a)\nlibrary_1().lock.b(relock)"
    )
