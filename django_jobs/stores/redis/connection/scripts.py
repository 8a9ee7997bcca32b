"""Loads lua/*/*.lua once.  A script declares its needs in comment lines:

--! keys jobs queued      keys of the queue that it uses: they arrive in KEYS, and become locals of these names
--! use clock record      libraries that are put before it (with their own keys and uses)
--! answers lines         it writes, so its calls are numbered; how its answer is kept (REPEATED, below)
--! args id lease:int     its arguments, which become locals of these names; `:int` is converted.  The first argument
                          after them is ARGV[FIRST].

and a library, if most calls need none of its functions, in

--! on demand             its functions are made when the first of them is called

A script may have a short form for the usual case, which needs fewer keys and functions.  It is made from the same
source: what is between `--! only full` and `--! end` is left out, and what is between `--[[ only short` and `--]]` is
put in.  If the case is not usual, it changes nothing and returns UNUSUAL; then the script is called in full (part.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from importlib.resources.abc import Traversable

Argument = str | bytes | int | float

_LUA = files("django_jobs.stores.redis") / "lua"
#: The folders of scripts, by what they do to a job, and of what several scripts use, by what it is about.
FOLDERS = ("adding", "claiming", "ending", "listing", "operating", "upkeep", "workflows")
LIBRARIES = ("lib/calls", "lib/ends", "lib/jobs", "lib/lanes")


@dataclass(frozen=True, slots=True)
class Script:
    """One transition: its source, its hash for EVALSHA, and the names of the keys that it gets."""

    name: str
    source: bytes
    sha: bytes
    keys: tuple[str, ...]
    #: It takes its keys by their place in KEYS, because they are of several queues or of none.
    by_place: bool = False
    #: It writes, and its calls carry a number of their sender (lib/calls/answers.lua).
    numbered: bool = False
    #: How many arguments it reads; None: all.  Each that it does not read costs the server as much as a small command.
    reads: int | None = None


#: How a script answers a call that was made before, by what its header says of its answer.
REPEATED = {
    # a list of texts
    "lines": "local repeated = answered()\nif repeated then\nreturn lines_of(repeated)\nend\n",
    # a text
    "text": "local repeated = answered()\nif repeated then\nreturn repeated\nend\n",
    # a whole number
    "number": "local repeated = answered()\nif repeated then\nreturn tonumber(repeated)\nend\n",
    # The script looks for work, and looks again: what the first call has done is not there any more.  Only the number
    # is kept.
    "again": "answered()\n",
    # the script asks `answered` itself
    "own": "",
}


#: What the short form of a script returns in place of an answer.
UNUSUAL = b"unusual"
_ONLY_FULL = re.compile(r"^ *--! only full\n(.*?)^ *--! end\n", re.M | re.S)
_ONLY_SHORT = re.compile(r"^ *--\[\[ only short\n(.*?)^ *--\]\]\n", re.M | re.S)


def load(name: str, *, short: bool = False) -> Script:
    """Return a script with its libraries.  Raises KeyError if no folder has it."""
    return _load(name, short)


@cache  # under one key for each form, however it is asked for
def _load(name: str, short: bool) -> Script:
    keys: list[str] = []
    parts: list[str] = []
    libraries: set[str] = set()
    _collect(_files(FOLDERS)[name], keys, parts, libraries, short=short)
    kept = _ANSWERS.search(parts[-1])
    by_place = _BY_PLACE.search(parts[-1])
    parts[-1] = _arguments(parts[-1]) + (REPEATED[kept[1]] if kept else "") + parts[-1]
    parts = _without_unused(parts)
    parts = _scoped(parts[:-1], parts[-1])
    code = _COMMENT.sub("", "\n".join(parts))
    words = set(_WORD.findall(code))
    keys = [key for key in keys if by_place or key in words]
    of_answers = ""
    if kept and by_place:  # the last key, which such a script does not count
        keys.remove("answers")
        of_answers = "local answers = table.remove(KEYS)\n"
    head = f"local {', '.join(keys)} = {', '.join(f'KEYS[{i}]' for i in range(1, len(keys) + 1))}\n" if keys else ""
    source = (of_answers + head + "\n".join(parts)).encode()
    sha = sha1(source, usedforsecurity=False).hexdigest().encode()
    read = _READS.findall(code)
    reads = max(map(int, read), default=0) if all(read) else None
    return Script(name, source, sha, tuple(keys), by_place is not None, kept is not None, reads)


def _arguments(text: str) -> str:
    """Return the locals for the arguments that a script declares."""
    declared = _ARGS.search(text)
    if not declared:
        return ""
    first = 4 if _ANSWERS.search(text) else 2  # after the clock; and after the channel and the number of the call
    names = [name.partition(":") for name in declared[1].split()]
    values = [f"tonumber(ARGV[{i}])" if kind else f"ARGV[{i}]" for i, (_, _, kind) in enumerate(names, first)]
    given = f"local {', '.join(name for name, _, _ in names)} = {', '.join(values)}\n" if names else ""
    return given + (f"local FIRST = {first + len(names)}\n" if re.search(r"\bFIRST\b", text) else "")


#: Puts the names of the keys, which come as arguments, where the script expects them.  The first command on each queue
#: fails if the queue is on another node.
_SPANNING = b"""
local number, each, keys, args = tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV]), {}, {}
for i = 1, number do
    args[i] = ARGV[i]
end
for i = number + 1, #ARGV - 2 do
    keys[i - number] = ARGV[i]
end
for i = 1, #keys, each do
    redis.call('EXISTS', keys[i])
end
local KEYS, ARGV = keys, args
"""


@cache
def load_spanning(name: str) -> Script:
    """Return a script that only reads, in a form that reads keys of several slots, if one node of a Cluster has all of
    them.  Its arguments: those of the script, the names of the keys, the number of the former, the keys of a queue."""
    script = load(name)
    source = _SPANNING + script.source
    return Script(script.name, source, sha1(source, usedforsecurity=False).hexdigest().encode(), ())


def _collect(file: Traversable, keys: list[str], parts: list[str], seen: set[str], *, short: bool = False) -> None:
    """Append the file's libraries, then the file; each library once."""
    text = _ONLY_FULL.sub("" if short else r"\1", file.read_text("utf-8"))
    text = _ONLY_SHORT.sub(r"\1" if short else "", text)
    for line in text.splitlines():
        if line.startswith("--! keys "):
            keys.extend(key for key in line.split()[2:] if key not in keys)
        elif line.startswith(("--! use ", "--! answers")):
            libraries = line.split()[2:] if "use" in line.split()[1] else ["answers", "lines"]
            for library in libraries:
                if library not in seen:
                    seen.add(library)
                    _collect(_files(LIBRARIES)[library], keys, parts, seen, short=short)
    parts.append(text)


#: A use of the arguments, and the number of the argument if it is a fixed one.
_READS = re.compile(r"\bARGV\b(?:\[(\d+)\])?")
_ANSWERS, _ARGS = re.compile(r"^--! answers (\w+)$", re.M), re.compile(r"^--! args ?([^\n]*)$", re.M)
_WORD, _COMMENT = re.compile(r"\w+"), re.compile(r"--[^\n]*")
#: A script that takes its keys by their place needs all that it declares.
_BY_PLACE = re.compile(r"\bKEYS\b")
#: A function at the top of a library.
_FUNCTION = re.compile(r"^local function (\w+)\b.*?^end\n", re.M | re.S)


def _words(code: str) -> list[str]:
    """Return the words of Lua code without its comments."""
    return _WORD.findall(_COMMENT.sub("", code))


def _without_unused(parts: list[str]) -> list[str]:
    """Return the libraries and the script without functions that nothing calls.

    Every call of a script creates each of its functions again, which costs 0.2 µs: in `begin`, more than its work."""
    functions = [list(_FUNCTION.finditer(text)) for text in parts[:-1]]
    left = {found[1]: Counter(_words(found[0])) for some in functions for found in some}
    used = Counter(_words("\n".join(parts)))
    while unused := [name for name, own in left.items() if used[name] <= own[name]]:
        for name in unused:
            used.subtract(left.pop(name))
    return [
        *(_FUNCTION.sub(lambda found: found[0] if found[1] in left else "", text) for text in parts[:-1]),
        parts[-1],
    ]


#: A local at the top of a library: a function, or one or more variables.
_LOCAL = re.compile(r"^local (?:function (\w+)|(\w+(?:, \w+)*) =)", re.M)
#: In the head of a library that most calls do not need.
_ON_DEMAND = re.compile(r"^--! on demand$", re.M)
#: What follows a name that gets a value, and what comes before one that is declared.
_ASSIGNED, _DECLARED = re.compile(r"\s*=[^=]"), re.compile(r"\b(?:local|for)\s+(?:\w+,\s*)*$")
#: A comment, a string, or a name with what stands before it.
_TOKEN = re.compile(r"--[^\n]*|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|[.\w]+")


def _scoped(libraries: list[str], script: str) -> list[str]:
    """Return the libraries and the script.  Each library is in a block of its own; outside are only those of its locals
    that other parts use.

    A Lua function, which the whole script is, can have 200 locals at a time.

    Of a library that is on demand, the functions are made when the first of them is called.  `claim` had 118 functions,
    and most calls need 40: to make them took 30 µs of each call, a third of its time if it claims one job."""
    words = [set(_WORD.findall(text)) for text in (*libraries, script)]
    found_in = Counter(word for some in words for word in some)
    #: name → the call that returns it, of each function that is made on demand.
    made: dict[str, str] = {}
    parts: list[str] = []
    for i, text in enumerate((*libraries, script)):
        if not words[i].isdisjoint(made):
            text = _called(made, text)
        declared = [[function] if function else names.split(", ") for function, names in _LOCAL.findall(text)]
        shared = [name for names in declared if any(found_in[name] > 1 for name in names) for name in names]
        if not shared or i == len(libraries):
            parts.append(text)
        elif _ON_DEMAND.search(text):
            table = ", ".join(f"{name} = {name}" for name in shared)
            parts.append(
                f"local made_{i}\nlocal function library_{i}()\nif not made_{i} then\n"
                f"{text}\nmade_{i} = {{{table}}}\nend\nreturn made_{i}\nend\n"
            )
            made |= dict.fromkeys(shared, f"library_{i}()")
        else:

            def share(found: re.Match[str], shared: list[str] = shared) -> str:
                names = [found[1]] if found[1] else found[2].split(", ")
                return found[0] if names[0] not in shared else found[0].removeprefix("local ")

            parts.append(f"local {', '.join(shared)}\ndo\n{_LOCAL.sub(share, text)}\nend\n")
    for i in reversed(range(len(libraries))):
        if f"function library_{i}()" in parts[i] and f"library_{i}()." not in "".join(parts):
            parts[i] = ""  # comments, strings and names of other things named its functions
    return parts


def _called(made: Mapping[str, str], text: str) -> str:
    """Return Lua code in which each of these names is taken from what its library, a call, returns.

    Raises ValueError if the code uses such a name for something of its own."""

    def take(found: re.Match[str]) -> str:
        library = made.get(found[0].partition(".")[0])
        if library is None:
            return found[0]
        before = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
        if _ASSIGNED.match(text, found.end()) or _DECLARED.search(before):
            raise ValueError(f"`{found[0]}` is a function of a library on demand: give the local another name.")
        return f"{library}.{found[0]}"

    return _TOKEN.sub(take, text)


def names() -> list[str]:
    """Return the names of all scripts, for tests and for loading them in advance."""
    return sorted(_files(FOLDERS))


@cache
def _files(folders: tuple[str, ...]) -> Mapping[str, Traversable]:
    entries = (entry for folder in folders for entry in _LUA.joinpath(folder).iterdir())
    return {entry.name.removesuffix(".lua"): entry for entry in entries if entry.name.endswith(".lua")}
