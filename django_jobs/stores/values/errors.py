"""What the store remembers of the errors of failed attempts."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from django_jobs.serialization.checked import LATEST, Unreadable, loads, whole

#: Errors of one queue that are remembered (lua/lib/ends/errors.lua).
MOST_ERRORS = 500


class Seen(NamedTuple):
    """When something was first and last seen (ms), and how often."""

    first: int
    last: int
    number: int

    def plus(self, other: Seen) -> Seen:
        """Return both together."""
        return Seen(min(self.first, other.first), max(self.last, other.last), self.number + other.number)


class KeptError(NamedTuple):
    """An error of one queue, beyond its jobs."""

    queue: str
    signature: str
    type: str
    #: the place in the project's code; "": the signature has the shape of the message instead.
    frame: str
    #: of the first attempt that failed so; "" = not known.
    first_release: str
    seen: Seen
    #: the latest of each: days (since 1970, UTC), releases, identities of job types, and messages.
    days: dict[int, Seen]
    releases: dict[str, Seen]
    types: dict[str, Seen]
    messages: dict[str, Seen]


def read_error(queue: str, signature: bytes, text: bytes) -> KeptError | None:
    """Return an entry of the store; None if it cannot be read."""
    try:
        first, *lines = text.decode(errors="replace").split("\n")
        since, last, number, release, head = first.split("\t", 4)
        about, seen = loads(head), _seen(since, last, number)
        if not isinstance(about, dict):
            raise Unreadable(f"{head!r:.100} is no object")
        kind, frame = (str(about.get(key, ""))[:500] for key in ("type", "frame"))
    except ValueError:
        return None
    found = KeptError(queue, signature.decode(errors="replace"), kind, frame, release, seen, {}, {}, {}, {})
    for line in lines:
        with suppress(ValueError):  # of a newer version, or damaged
            letter, since, last, number, key = line.split("\t", 4)
            part = _seen(since, last, number)
            match letter:
                case "d" if whole(key) * 86_400_000 <= LATEST:
                    found.days[whole(key)] = part
                case "r":
                    found.releases[key] = part
                case "t":
                    found.types[key] = part
                case "m":
                    found.messages[str(loads(key))] = part
    return found


def _seen(first: str, last: str, number: str) -> Seen:
    found = Seen(whole(first), whole(last), whole(number))
    if max(found[:2]) > LATEST:
        raise Unreadable(f"{last:.40} is no time")
    return found
