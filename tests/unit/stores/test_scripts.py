"""How scripts are put together and sent."""

from __future__ import annotations

import re
from collections.abc import Callable
from time import thread_time

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.stores.redis import Store
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


def test_long_lists_of_keys_are_not_kept() -> None:
    script = scripts.load("stats")
    before = thread_connection._beginning.cache_info().currsize
    thread_connection.packed_call(script, [f"key {i}" for i in range(thread_connection.MOST_KEYS + 1)], [0])
    assert thread_connection._beginning.cache_info().currsize == before


@pytest.mark.parametrize("name", ["claim", "complete", "settle"])
def test_a_prepared_store_has_the_scripts_of_every_job(name: str) -> None:
    """Putting `claim` together takes 12 ms, which the first job of each process would wait for."""
    scripts.load.cache_clear()
    Store.from_setting("redis://server").prepare()
    missing = scripts.load.cache_info().misses
    scripts.load(name)
    assert scripts.load.cache_info().misses == missing


@pytest.mark.parametrize("name", scripts.names())
def test_a_script_has_no_function_and_no_key_that_it_does_not_use(name: str) -> None:
    script = scripts.load(name)
    code = re.sub(r"--[^\n]*", "", script.source.decode())
    functions = re.findall(r"^ *(?:local )?function (\w+)", code, re.M)
    assert [one for one in functions if len(re.findall(rf"\b{one}\b", code)) == 1] == []
    _, rest = code.split("\n", 1)
    if "KEYS" not in rest:
        assert [key for key in script.keys if not re.search(rf"\b{key}\b", rest)] == []


#: A library on demand, as it is put into a script.
ON_DEMAND = re.compile(r"^local function library_\d+\(\)\n.*?^return made_\d+\nend\n", re.M | re.S)


@pytest.mark.parametrize(("name", "most"), [("claim", 60), ("complete", 36), ("settle", 41), ("enqueue", 45)])
def test_a_call_makes_few_functions_if_it_needs_few(name: str, most: int) -> None:
    """Each takes a part of a microsecond, in every call.  `claim` has 129 in all."""
    code = re.sub(r"--[^\n]*", "", ON_DEMAND.sub("function", scripts.load(name).source.decode()))
    assert len(re.findall(r"\bfunction\b", code)) <= most


def test_a_library_on_demand_has_several_functions_to_make() -> None:
    """One function costs as much as the function that makes it.  What the loader does not see stays as it is."""
    marked = {
        file.name: len(re.findall(r"^(?:local )?function ", text, re.M))
        for file in (scripts._LUA / "lib").iterdir()
        if "--! on demand" in (text := file.read_text("utf-8"))
    }
    assert len(marked) > 9
    assert [name for name, functions in marked.items() if functions < 2] == []


def test_what_looks_like_a_function_of_a_library_on_demand_is_left_alone() -> None:
    code = "-- lock\nlocal a = {lock = 'lock \\' lock', b = x.lock}\nlock(a)\nlock.b(relock)"
    with pytest.raises(ValueError, match=r"`lock` is a function of a library on demand"):
        scripts._called({"lock": "library_1()"}, code)
    code = code.replace("{lock", "{['lock']")
    assert scripts._called({"lock": "library_1()"}, code) == (
        "-- lock\nlocal a = {['lock'] = 'lock \\' lock', b = x.lock}\nlibrary_1().lock(a)\nlibrary_1().lock.b(relock)"
    )


def test_to_put_a_script_together_takes_no_longer_than_to_read_its_words_twenty_times() -> None:
    """Each process does it before its first job, and a web process before its first enqueue."""
    text = scripts.load("claim").source.decode()

    def seconds(call: Callable[[], object]) -> float:
        began = thread_time()
        call()
        return thread_time() - began

    # In turn, and by the time of this thread: what else the machine does meets both or neither.
    rounds = [(seconds(lambda: scripts.load.__wrapped__("claim")), seconds(lambda: _words(text))) for _ in range(7)]
    made, read = (min(column) for column in zip(*rounds, strict=True))
    assert made <= 20 * read


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)
