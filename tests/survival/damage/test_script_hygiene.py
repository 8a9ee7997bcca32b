"""What every script keeps to: the keys it is given, one hash tag, no global names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection import scripts
from tests.support.backends.redis_process import RedisServer
from tests.support.faults.walking import Walk
from tests.survival.conftest import Clock

_KEYWORDS = "and break do else elseif end false for function if in local nil not or repeat return then true until while"
_GIVEN = "KEYS ARGV redis cjson string table math tonumber tostring type pairs ipairs unpack pcall error select next"
KEYWORDS = frozenset(_KEYWORDS.split())
#: What Redis gives every script; anything else must be declared.
GIVEN = frozenset(_GIVEN.split())
TOKEN = re.compile(
    r"""--\[\[.*?\]\]|--[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\d[\w.]*|[A-Za-z_]\w*|\.\.\.?|[^\sA-Za-z_]""", re.S
)


def tokens(source: str) -> list[str]:
    """Without comments and strings."""
    return [token for token in TOKEN.findall(source) if not token.startswith(("--", '"', "'"))]


def declared(found: list[str]) -> set[str]:
    """Locals, parameters, loop variables and local functions, wherever they are declared."""
    names: set[str] = set()
    for i, token in enumerate(found):
        rest = found[i + 1 :]
        if token in ("local", "for"):
            if rest[0] == "function":
                names.add(rest[1])
                continue
            for word in rest:
                if word in ("=", "in") or (word != "," and not word[0].isalpha() and word[0] != "_"):
                    break
                if word in KEYWORDS:
                    break
                names.add(word)
        elif token == "function":
            opening = rest.index("(")
            names |= {word for word in rest[opening + 1 : rest.index(")")] if word[0].isalpha() or word[0] == "_"}
    return names


def undeclared(source: str) -> Iterator[str]:
    """Names that are used and come from nowhere."""
    found = tokens(source)
    known = KEYWORDS | GIVEN | declared(found)
    for i, token in enumerate(found):
        if not (token[0].isalpha() or token[0] == "_") or token in known:
            continue
        is_field = i > 0 and found[i - 1] in (".", ":")
        is_table_key = i + 1 < len(found) and found[i + 1] == "=" and found[i - 1] in ("{", ",")
        if not is_field and not is_table_key:
            yield token


def test_the_search_for_globals_finds_one() -> None:
    assert list(undeclared("local a = 1 -- b\nlocal t = {c = a}\nreturn t.c .. 'd' .. leaked")) == ["leaked"]


@pytest.mark.accepts("R15")
@pytest.mark.parametrize("short", [False, True], ids=["full", "short"])
@pytest.mark.parametrize("name", scripts.names())
def test_no_script_uses_a_name_it_does_not_declare(name: str, short: bool) -> None:
    assert sorted(set(undeclared(scripts.load(name, short=short).source.decode()))) == []


@pytest.mark.parametrize("name", scripts.names())
def test_no_script_decodes_or_writes_json_of_a_payload(name: str) -> None:
    """Only the controls and the last line of a log are decoded, and nothing is ever encoded: numbers would change."""
    source = scripts.load(name).source.decode()
    assert "cjson.encode" not in source
    assert source.count("cjson.decode") == source.count("pcall(cjson.decode, line)") <= 2


def called(command: str) -> tuple[str, list[str]]:
    """Return which script a line of MONITOR calls, and the words behind: the number of its keys, its keys, ….

    The first call of a script on a connection has all of it."""
    verb, _, rest = command.partition(" ")
    rest = rest.encode("latin-1").decode("unicode_escape") if verb.upper() == "EVAL" else rest
    for name, short in itertools.product(scripts.names(), (False, True)):
        script = scripts.load(name, short=short)
        start = script.source.decode("latin-1") if verb.upper() == "EVAL" else script.sha.decode()
        if rest.startswith(start + " "):
            return name, rest.removeprefix(start + " ").split(" ")
    raise AssertionError(f"{command[:100]} calls no script of ours")


@pytest.mark.redis
@pytest.mark.accepts("K06")
def test_every_script_touches_only_keys_it_was_given_and_of_one_slot(
    law_store: Store, quiet_server: RedisServer, virtual: Clock
) -> None:
    for name in scripts.names():
        for short in (False, True):
            law_store.transport.client.script_load(scripts.load(name, short=short).source.decode())
    watcher = quiet_server.client()
    with watcher.monitor() as monitor:
        walk = Walk(law_store, virtual, seed=1)
        for _ in range(400):
            walk.step()
        law_store.transport.command("PING", "the end")
        given: set[str] = set()
        script, seen = "", 0
        while True:
            line = monitor.next_command()
            words = line["command"].split(" ")
            verb = words[0].upper()
            if verb == "PING":
                break
            if line["client_type"] != "lua":
                if verb in ("EVAL", "EVALSHA"):
                    script, words = called(line["command"])
                    given = set(words[1 : 1 + int(words[0])])
                    tags = {key[key.index("{") : key.index("}") + 1] for key in given}
                    # These may span slots on one server; on a Cluster, they are called once for each place.
                    spanning = ("old_homes", "find", "workflow_end")
                    assert len(tags) == 1 or script in spanning, f"{script} was given keys of {tags}"
                continue
            if verb != "TIME":
                assert words[1] in given, f"{script} calls {verb} on {words[1]}, which it was not given"
                seen += 1
    watcher.close()
    assert seen > 1_000
