"""The groups of failed jobs, by job type and error and by tag."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

from django_jobs.core.values import State
from django_jobs.exceptions import StoreMisconfigured
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

#: Queues in one call at first; a call deals with fewer if they have many groups.
QUEUES_OF_GROUPS = 500
#: Kinds of groups that the server looks for; of more, all groups are read.
KINDS = 500
#: Calls in one pipeline.
CALLS = 600
#: The letters in lua/lib/failed.lua.
LETTERS = {State.DEAD: "d", State.RETRY: "r"}


class Groups(Part):
    """Groups of failed jobs.  These methods only read, and cost O(number of queues and of what they return)."""

    def failure_groups(
        self, queues: Sequence[str], state: State, kinds: Collection[FailureKind] | None = None
    ) -> list[FailureGroup]:
        """Return the groups of the dead jobs, or of those that wait for a retry, in these queues; some may be empty.
        Raises ValueError for another state.

        `kinds`: only groups of these job types and errors, which the store finds without the others.  All groups of 500
        queues may be 70,000."""
        letter, fields = letter_of(state), _fields(state, kinds)
        if fields == []:
            return []
        chosen = None if fields or kinds is None else frozenset(kinds)
        return [
            FailureGroup(queue, *group)
            for queue, flat in zip(queues, self._groups(queues, letter, fields), strict=True)
            for group in _read_groups(letter, flat)
            if chosen is None or group[:2] in chosen
        ]

    def _groups(
        self, queues: Sequence[str], letter: str, fields: list[bytes] | None, key: str = "groups"
    ) -> Iterator[Any]:
        """Yield the groups of each queue: field, value, flat.  `key`: "groups" or "tags"."""
        if not self._scripts_refused:
            try:
                found = [flat for _, some in self._run_groups("each", queues, letter, fields, key) for flat in some]
            except StoreMisconfigured:
                self._scripts_refused = True
            else:
                return iter(found) if fields is None else map(partial(_paired, fields), found)
        names = [self.keys.of(queue)[key] for queue in queues]
        if fields is None:
            return iter(self.transport.pipeline([("HGETALL", name) for name in names]))
        return map(partial(_paired, fields), self.transport.pipeline([("HMGET", name, *fields) for name in names]))

    def failure_kinds(self, queues: Sequence[str]) -> dict[State, set[FailureKind]]:
        """Return the job types and errors of all groups of each of the two states; some groups may be empty."""
        if not self._scripts_refused:
            try:
                read = [_read_field(field) for _, fields in self._run_groups("fields", queues) for field in fields]
                return {
                    state: {FailureKind(*kind) for first, *kind in read if first == letter}
                    for state, letter in LETTERS.items()
                }
            except StoreMisconfigured:
                self._scripts_refused = True
        return {
            state: {FailureKind(group.name, group.signature) for group in self.failure_groups(queues, state)}
            for state in LETTERS
        }

    def failure_sums(
        self, queues: Sequence[str], state: State, kinds: Collection[FailureKind] | None = None
    ) -> list[FailureSum]:
        """Return the groups that have jobs, added up over the queues: one sum for each job type and error."""
        letter, fields = letter_of(state), _fields(state, kinds)
        if not self._scripts_refused and (kinds is None or fields):
            try:
                calls = self._run_groups("sums", queues, letter, fields)
                return merged(each for some, flat in calls for each in _read_sums(letter, some, flat))
            except StoreMisconfigured:
                self._scripts_refused = True
        return add_up(self.failure_groups(queues, state, kinds))

    def _run_groups(
        self, what: str, queues: Sequence[str], letter: str = "", fields: list[bytes] | None = None, key: str = "groups"
    ) -> Iterator[tuple[Sequence[str], list[Any]]]:
        """Run lua/groups.lua over all these queues, and yield the queues and the reply of each call.  A call deals with
        as many queues as take some milliseconds, and the next one goes on from there."""
        at, most = 0, QUEUES_OF_GROUPS if self.transport.spans else 1
        while at < len(queues):
            some = queues[at : at + most]
            keys = [self.keys.of(queue)[key] for queue in some]
            done, *reply = self.transport.run(load("groups"), keys, (self._clock(), what, letter, *(fields or ())))
            yield some, reply
            at, most = at + done, min(most, 2 * done)

    def failure_tags(self, queues: Sequence[str], state: State, tag: str = "") -> list[FailureGroup]:
        """Return a group for each tag of the dead jobs, or of those that wait for a retry, in these queues; with `tag`,
        only the group of this tag and that of OTHER_TAGS.  A job with several tags is in several groups.  Some may be
        empty.  Raises ValueError for another state.

        A group of a tag has all jobs of its queue with this tag.  Jobs with a tag that has no group are in that of
        OTHER_TAGS.  Times are those of failures, as in `failure_groups`."""
        letter = letter_of(state)
        fields = [(letter + tag).encode(), letter.encode()] if tag else None
        found = zip(queues, self._groups(queues, letter, fields, "tags"), strict=True)
        return [group for queue, flat in found for group in _read_tags(queue, letter, flat)]

    def tag_sums(self, queues: Sequence[str], state: State) -> list[FailureSum]:
        """Return the groups by tags that have jobs, added up over the queues: `name` is the tag or OTHER_TAGS, `groups`
        how many of the queues have such a group.  Raises ValueError as `failure_tags` does."""
        letter = letter_of(state)
        if not self._scripts_refused:
            try:
                calls = self._run_groups("sums", queues, letter, None, "tags")
                return merged(each for some, flat in calls for each in _read_tag_sums(letter, some, flat))
            except StoreMisconfigured:
                self._scripts_refused = True
        return add_up(group._replace(name=group.tag) for group in self.failure_tags(queues, state))


def letter_of(state: State) -> str:
    """Return the letter of the state in the index.  Raises ValueError for a state without groups."""
    check_grouped(state)
    return LETTERS[state]


def _fields(state: State, kinds: Collection[FailureKind] | None) -> list[bytes] | None:
    """Return the fields of these kinds of groups, if the server can look for them: None if it cannot, or for all."""
    if kinds is None or len(kinds) > KINDS or any("\ufffd" in text for kind in kinds for text in kind):
        return None  # U+FFFD is for bytes that are no text, and we do not know them
    return [f"{LETTERS[state]}{kind.name}\n{kind.signature}".encode() for kind in kinds]


def _paired(fields: list[bytes], values: list[bytes | None]) -> list[bytes]:
    """Return field, value of those that are there, flat."""
    return [part for field, value in zip(fields, values, strict=True) if value for part in (field, value)]


def _read_groups(letter: str, reply: Any) -> Iterator[tuple[str, str, int, int, int, int]]:
    """Yield name, signature, jobs, first, last, number of each group; entries that cannot be read are left out."""
    for field, value in _pairs(reply):
        kind, name, signature = _read_field(field)
        if kind == letter and (numbers := _read_value(value)) is not None:
            yield name, signature, *numbers


def _pairs(reply: Any) -> Iterable[tuple[Any, Any]]:
    """Return field and value of each entry: servers answer flat, or by a mapping."""
    return reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)


def _read_value(value: bytes) -> tuple[int, int, int, int] | None:
    """Return jobs, first, last and number of a group; None if its entry cannot be read."""
    try:
        number, jobs, first, last = map(int, value.split(b":"))
    except ValueError:
        return None
    return jobs, first, last, number


def _read_sums(letter: str, queues: Sequence[str], flat: list[Any]) -> Iterator[FailureSum]:
    """Yield the sums in a reply of lua/groups.lua."""
    for i in range(0, len(flat), 7):
        field, *numbers, queue, value = flat[i : i + 7]
        for group in _read_groups(letter, [field, value]):
            groups, jobs, first, last = numbers
            example = FailureGroup(queues[queue - 1], *group)
            yield FailureSum(*group[:2], groups, jobs, first, last, example)


def _read_tag_sums(letter: str, queues: Sequence[str], flat: list[Any]) -> Iterator[FailureSum]:
    """Yield the sums of tags in a reply of lua/groups.lua."""
    for i in range(0, len(flat), 7):
        field, *numbers, queue, value = flat[i : i + 7]
        for group in _read_tags(queues[queue - 1], letter, [field, value]):
            groups, jobs, first, last = numbers
            yield FailureSum(group.tag, "", groups, jobs, first, last, group)


def _read_tags(queue: str, letter: str, reply: Any) -> Iterator[FailureGroup]:
    """Yield the groups by tags of one state; entries that cannot be read are left out."""
    for given, value in _pairs(reply):
        field = text_of(given) if isinstance(given, bytes) else given
        if field[:1] == letter and value is not None and (numbers := _read_value(value)) is not None:
            yield FailureGroup(queue, "", "", *numbers, field[1:] or OTHER_TAGS)


@lru_cache(maxsize=20_000)
def _read_field(field: bytes) -> tuple[str, str, str]:
    """Return letter, name and signature; hundreds of queues have the same fields."""
    name, separator, signature = field.decode(errors="replace").partition("\n")
    return (name[:1], name[1:], signature) if separator else ("", "", "")


def text_of(member: bytes) -> str:
    """Return a member or a field as text that keeps every byte."""
    return member.decode("latin-1")
