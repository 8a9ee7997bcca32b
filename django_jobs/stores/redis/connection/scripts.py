"""Loads lua/*.lua once.  A script declares its needs in two kinds of comment line:

--! keys jobs queued      keys of the queue that it uses: they arrive in KEYS, and become locals of these names
--! use clock record      files of lua/lib/ that are put before it (with their own keys and uses)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from importlib.resources.abc import Traversable

_LUA = files("django_jobs.stores.redis") / "lua"


@dataclass(frozen=True, slots=True)
class Script:
    """One transition: its source, its hash for EVALSHA, and the names of the keys that it gets."""

    name: str
    source: bytes
    sha: bytes
    keys: tuple[str, ...]
    #: its calls carry a number of their sender (lib/answers.lua).
    numbered: bool = False


@cache
def load(name: str) -> Script:
    """Return the script lua/<name>.lua with its libraries."""
    keys: list[str] = []
    parts: list[str] = []
    libraries: set[str] = set()
    _collect(_LUA / f"{name}.lua", keys, parts, libraries)
    head = f"local {', '.join(keys)} = {', '.join(f'KEYS[{i}]' for i in range(1, len(keys) + 1))}\n" if keys else ""
    source = (head + "\n".join(parts)).encode()
    sha = sha1(source, usedforsecurity=False).hexdigest().encode()
    return Script(name, source, sha, tuple(keys), "answers" in libraries)


def _collect(file: Traversable, keys: list[str], parts: list[str], seen: set[str]) -> None:
    """Append the file's libraries, then the file; each library once."""
    text = file.read_text("utf-8")
    for line in text.splitlines():
        if line.startswith("--! keys "):
            keys.extend(key for key in line.split()[2:] if key not in keys)
        elif line.startswith("--! use "):
            for library in line.split()[2:]:
                if library not in seen:
                    seen.add(library)
                    _collect(_LUA / "lib" / f"{library}.lua", keys, parts, seen)
    parts.append(text)


def names() -> list[str]:
    """Return the names of all scripts, for tests and for loading them in advance."""
    return sorted(entry.name.removesuffix(".lua") for entry in _LUA.iterdir() if entry.name.endswith(".lua"))
