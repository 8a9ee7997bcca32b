"""The groups of failed jobs, by job type and error and by tag."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

from django_jobs.core import registry
from django_jobs.core.values import State
from django_jobs.stores.redis.connection.part import Part
from django_jobs.stores.redis.connection.scripts import load
from django_jobs.stores.values.lists import (
    OTHER_TAGS,
    FailureGroup,
    FailureKind,
    FailureSum,
    add_up,
    check_grouped,
    merged,
)
from django_jobs.stores.values.sizes import chunks

#: Queues in one call at first; a call deals with fewer if they have many groups.
QUEUES_OF_GROUPS = 500
#: Kinds of groups that the server looks for; of more, all groups are read.
KINDS = 500
#: Calls in one pipeline.
CALLS = 600
#: The letters in lua/lib/ends/failed.lua: of groups by error, and of groups by tag.
LETTERS, TAG_LETTERS = {State.DEAD: "d", State.RETRY: "r"}, {State.DEAD: "D", State.RETRY: "R"}


class Groups(Part):
    """Groups of failed jobs.  These methods only read, and cost O(number of queues and of what they return)."""

    def failure_groups(
        self, queues: Sequence[str], state: State, kinds: Collection[FailureKind] | None = None
    ) -> list[FailureGroup]:
        """Return the groups of the dead jobs, or of those that wait for a retry, in these queues; some may be empty.
        Raises ValueError for another state.  The store keeps them by the identity of the type, and returns its current
        name.

        `kinds`: only groups of these job types and errors, which the store finds without the others.  All groups of 500
        queues may be 70,000."""
        letter, fields = letter_of(state), _fields(state, kinds)
        if fields == []:
            return []
        chosen = None if fields or kinds is None else frozenset(kinds)
        return [
            group
            for queue, flat in self._groups(queues, letter, fields)
            for group in _read_groups(letter, queue, flat)
            if chosen is None or (group.name, group.signature) in chosen
        ]

    def _groups(self, queues: Sequence[str], letter: str, fields: list[bytes] | None) -> Iterator[tuple[str, Any]]:
        """Yield each queue with its groups: field, value and number of jobs, flat."""
        calls = partial(self._run_groups, "each", queues, letter, fields)
        if (found := self._by_script(lambda: [flat for _, some in calls() for flat in some])) is not None:
            yield from zip(queues, found, strict=True)
            return
        for queue in queues:
            names = self.keys.of(queue)
            key = names["tag_groups" if letter.isupper() else "error_groups"]
            if fields:
                known: Iterable[Any] = zip(fields, self.transport.command("HMGET", key, *fields), strict=True)
            else:
                known = pairs_of(self.transport.command("HGETALL", key))
            groups = [(field, value) for field, value in known if value is not None]
            sizes = [("ZLEXCOUNT", names["failures"], *bounds_of(_name_of(each, letter))) for each in groups]
            counts = [number for some in chunks(sizes, CALLS) for number in self.transport.pipeline(some)]
            yield queue, [part for each, jobs in zip(groups, counts, strict=True) for part in (*each, jobs)]

    def failure_kinds(self, queues: Sequence[str]) -> dict[State, set[FailureKind]]:
        """Return the job types and errors of all groups of each of the two states; some groups may be empty."""
        read = self._by_script(
            lambda: [_read_field(field) for _, fields in self._run_groups("fields", queues) for field in fields]
        )
        if read is not None:
            return {
                state: {FailureKind(registry.current_name(name), text) for first, name, text in read if first == letter}
                for state, letter in LETTERS.items()
            }
        return {
            state: {FailureKind(group.name, group.signature) for group in self.failure_groups(queues, state)}
            for state in LETTERS
        }

    def failure_sums(
        self, queues: Sequence[str], state: State, kinds: Collection[FailureKind] | None = None
    ) -> list[FailureSum]:
        """Return the groups that have jobs, added up over the queues: one sum for each job type and error."""
        fields = _fields(state, kinds)
        if (kinds is None or fields) and (sums := self._sums(queues, letter_of(state), fields)) is not None:
            return sums
        return add_up(self.failure_groups(queues, state, kinds))

    def _sums(self, queues: Sequence[str], letter: str, fields: list[bytes] | None = None) -> list[FailureSum] | None:
        """Return the sums that the server adds up; None if it may not."""
        calls = self._run_groups("sums", queues, letter, fields)
        return self._by_script(
            lambda: merged(each for some, flat in calls for each in _read_sums(letter, some, flat))
        )  # fmt: skip

    def _run_groups(
        self, what: str, queues: Sequence[str], letter: str = "", fields: list[bytes] | None = None
    ) -> Iterator[tuple[Sequence[str], list[Any]]]:
        """Run lua/listing/groups.lua over all these queues, and yield the queues and the reply of each call.

        A call deals with as many queues as take some milliseconds, and the next one goes on from there."""
        at, most = 0, QUEUES_OF_GROUPS if self.transport.spans else 1
        while at < len(queues):
            some = queues[at : at + most]
            keys = [key for queue in some for key in self._script("groups", queue)[1]]
            done, *reply = self.transport.run(load("groups"), keys, (self._clock(), what, letter, *(fields or ())))
            yield some, reply
            at, most = at + done, min(most, 2 * done)

    def failure_tags(self, queues: Sequence[str], state: State, tag: str = "") -> list[FailureGroup]:
        """Return a group for each tag of the dead jobs, or of those that wait for a retry, in these queues; with `tag`,
        only the group of this tag and that of OTHER_TAGS.  A job with several tags is in several groups.  Some may be
        empty.  Raises ValueError for another state.

        A group of a tag has all jobs of its queue with this tag.  Jobs with a tag that has no group are in that of
        OTHER_TAGS.  Times are those of failures, as in `failure_groups`."""
        letter_of(state)
        letter = TAG_LETTERS[state]
        fields = [(letter + tag).encode(), letter.encode()] if tag else None
        return [
            group for queue, flat in self._groups(queues, letter, fields) for group in _read_groups(letter, queue, flat)
        ]

    def tag_sums(self, queues: Sequence[str], state: State) -> list[FailureSum]:
        """Return the groups by tags that have jobs, added up over the queues: `name` is the tag or OTHER_TAGS, `groups`
        how many of the queues have such a group.  Raises ValueError as `failure_tags` does."""
        letter_of(state)
        sums = self._sums(queues, TAG_LETTERS[state])
        if sums is not None:
            return sums
        return add_up(group._replace(name=group.tag) for group in self.failure_tags(queues, state))


def letter_of(state: State) -> str:
    """Return the letter of the state in the index.  Raises ValueError for a state without groups."""
    check_grouped(state)
    return LETTERS[state]


def name_of_group(state: State, group: FailureGroup) -> str:
    """Return the name of a group in the index."""
    return f"{(TAG_LETTERS if group.tag else LETTERS)[state]}{group.number:012x}"


def bounds_of(group: str) -> tuple[str, str]:
    """Return the bounds of the range with all jobs of a group."""
    return f"[{group}", f"({group}:"


def _fields(state: State, kinds: Collection[FailureKind] | None) -> list[bytes] | None:
    """Return the fields of these kinds of groups, if the server can look for them: None if it cannot, or for all."""
    letter = letter_of(state)
    if kinds is None or len(kinds) > KINDS or any("\ufffd" in text for kind in kinds for text in kind):
        return None  # U+FFFD is for bytes that are no text, and we do not know them
    return [f"{letter}{name}\n{kind.signature}".encode() for kind in kinds for name in registry.names_of(kind.name)]


def pairs_of(reply: Any) -> Iterable[tuple[Any, Any]]:
    """Return field and value of each entry: servers answer flat, or by a mapping."""
    return reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)


def _name_of(group: tuple[bytes, bytes], letter: str) -> str:
    return letter + group[1].partition(b":")[0].decode(errors="replace")


def _read_groups(letter: str, queue: str, flat: Sequence[Any]) -> Iterator[FailureGroup]:
    """Yield the groups of one state; entries that cannot be read are left out."""
    for field, value, jobs in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
        kind, name, signature = _read_field(field)
        numbers = _read_value(value)
        if kind != letter or numbers is None:
            continue
        number, first, last = numbers
        tag = (name or OTHER_TAGS) if letter.isupper() else ""
        named = "" if tag else registry.current_name(name)
        yield FailureGroup(queue, named, signature, jobs, first, last, number, tag)


def _read_value(value: bytes) -> tuple[int, int, int] | None:
    """Return number, first and last of a group; None if its entry cannot be read."""
    try:
        digest, first, last = value.split(b":")
        return int(digest, 16), int(first), int(last)
    except ValueError:
        return None


def _read_sums(letter: str, queues: Sequence[str], flat: list[Any]) -> Iterator[FailureSum]:
    """Yield the sums in a reply of lua/listing/groups.lua."""
    for i in range(0, len(flat), 8):
        field, groups, jobs, first, last, queue, value, fewest = flat[i : i + 8]
        for group in _read_groups(letter, queues[queue - 1], [field, value, fewest]):
            yield FailureSum(group.tag or group.name, group.signature, groups, jobs, first, last, group)


@lru_cache(maxsize=20_000)
def _read_field(field: bytes) -> tuple[str, str, str]:
    """Return letter, name or tag, and signature; hundreds of queues have the same fields."""
    name, separator, signature = field.decode(errors="replace").partition("\n")
    return (name[:1], name[1:], signature) if separator or name[:1].isupper() else ("", "", "")


def text_of(member: bytes) -> str:
    """Return a member or a field as text that keeps every byte."""
    return member.decode("latin-1")
