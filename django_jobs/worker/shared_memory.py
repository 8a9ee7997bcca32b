"""What a child shows its parent without a message: memory that both have, made before the fork.

The child notes here what it has claimed and not begun.  The parent may revoke that, all of it at once, while a job of
the child lets no other thread run there (C code that holds the GIL).

Nobody waits here and there is no lock, as a child may stand still at any line.  Order and time take its place:

* who begins a job notes that first, and then looks whether his claims were revoked;
* who revokes does that first, and looks SETTLED seconds later what had been begun.

No processor keeps a write from the others for that long, and a thread that loses its processor has written everything.
So the child sees that its claims were revoked, or the parent sees that the job was begun; where both do, the job is not
begun, and the child hands it back itself.  What is read here counts only where it is the same SETTLED seconds later.
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Sequence
from time import monotonic
from typing import NamedTuple

from django_jobs.core.values import Claim

#: Seconds between a write of one side and a look of the other that relies on it.
SETTLED = 0.1
#: Claims of one call that are noted, and bytes of their ids (128 each at the most, with one between them): as many as a
#: thread claims at a time (sizing.LARGEST).
_CLAIMS, _TEXT = 256, 256 * 129
_WORD = 8

# Words at the beginning: the number of revocations; of the claim call that is under way its number (0 = none), the
# revocations before it, the queue, the newest token got from that queue before, since when (ms, monotonic); until when
# the job that runs may run (ms, monotonic; 0 = for ever, or none runs).
_REVOKED, _ASKED, _ASKED_BEFORE, _ASKED_QUEUE, _NEWEST, _ASKED_AT, _DEADLINE = range(7)
_HEAD = 8 * _WORD
# Words of a thread: number of its batch (0 = what stands here is not valid), then of that batch: the revocations before
# its claim call, queue, token, ms when it was claimed, how many claims, bytes of their ids, since when (ms, monotonic).
_BATCH, _BEFORE, _QUEUE, _TOKEN, _CLAIMED_AT, _COUNT, _LENGTH, _SINCE = range(8)
_WORDS = 8
_THREAD = _WORDS * _WORD + _CLAIMS + _TEXT
_THREAD += -_THREAD % _WORD


class Asked(NamedTuple):
    """A claim call that is under way, of before the last revocation: nothing that it brings will be begun."""

    number: int
    queue: str
    #: the newest token that the child had from the queue: what it holds of later ones came with this call.
    newest: int


class NotBegun(NamedTuple):
    """What a child has claimed and will not begin, as its claims were revoked."""

    asked: Asked | None
    #: without their records.
    claims: tuple[Claim, ...]


class SharedMemory:
    """The memory of one child and its parent.  Raises OSError where there is no room for it.

    `queues`: all that the child may claim from; `threads`: how many of its threads claim."""

    def __init__(self, queues: Sequence[str], threads: int) -> None:
        self.queues, self.threads = list(queues), threads
        self._numbers = {queue: number for number, queue in enumerate(self.queues)}
        #: behind the first words a byte for each queue (1 = the parent has closed it), then the threads.
        self.start = _HEAD + len(self.queues) + -len(self.queues) % _WORD
        self.bytes = memoryview(mmap.mmap(-1, self.start + threads * _THREAD))
        self.words = self.bytes.cast("Q")
        #: of the child: the last call and batch; queue → newest token; queue → revocations before its unanswered call.
        self._last = 0
        self._newest: dict[str, int] = {}
        self._unanswered: dict[str, int] = {}
        #: revocations before the claim call that is under way, or was the last.
        self.before = 0

    # -- the child's side: one thread at a time asks ------------------------------------

    def next_number(self) -> int:
        self._last += 1
        return self._last

    def is_open(self, queue: str) -> bool:
        """May the child claim from it?"""
        return not self.bytes[_HEAD + self._numbers[queue]]

    def asks(self, queue: str) -> bool:
        """A claim call begins.  One that was not answered is made again and gets the same answer: it is as old as the
        first.  False: the parent has closed the queue, and the call must not be made."""
        words = self.words
        self.before = self._unanswered.get(queue, words[_REVOKED])
        words[_ASKED_BEFORE], words[_ASKED_QUEUE] = self.before, self._numbers[queue]
        words[_NEWEST], words[_ASKED_AT] = self._newest.get(queue, 0), _now()
        words[_ASKED] = self.next_number()
        return self.is_open(queue)

    def was_not_answered(self, queue: str) -> None:
        """The call failed, and may have been made."""
        self._unanswered[queue] = self.before

    def was_answered(self, queue: str, claims: Sequence[Claim]) -> None:
        """The call brought these; it stays noted until somebody has taken them (`Thread.takes`)."""
        self._unanswered.pop(queue, None)
        if claims:
            self._newest[queue] = max(self._newest.get(queue, 0), claims[0].token)

    def asks_no_more(self) -> None:
        """What the call brought has been taken by a thread."""
        self.words[_ASKED] = 0

    def may_run_until(self, deadline: float | None) -> None:
        """The job that begins has a time limit (monotonic seconds); None: it has none, or its function has returned."""
        self.words[_DEADLINE] = 0 if deadline is None else int(deadline * 1000) + 1

    # -- the parent's side --------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When the job that runs has to be ended (monotonic seconds)."""
        return self.words[_DEADLINE] / 1000 or None

    def waits_since(self) -> float | None:
        """Since when something claimed has not been begun, or a claim call is under way (monotonic seconds)."""
        words = self.words
        since = [words[_ASKED_AT]] if words[_ASKED] else []
        for thread in range(self.threads):
            at = (self.start + thread * _THREAD) // _WORD
            if words[at + _BATCH] and 0 in self._marks(thread)[: words[at + _COUNT]]:
                since.append(words[at + _SINCE])
        return min(since) / 1000 if since else None

    def close_queues(self, queues: Collection[str]) -> None:
        """The child claims from these no more, and from all others.  SETTLED seconds later `may_ask` says of a queue
        whether a call that began before is still under way."""
        for number, queue in enumerate(self.queues):
            self.bytes[_HEAD + number] = queue in queues

    def may_ask(self, queue: str) -> bool:
        """Is a claim call from this queue under way?"""
        return self.words[_ASKED] != 0 and self.words[_ASKED_QUEUE] == self._numbers[queue]

    def revoke(self) -> None:
        """Nothing that was claimed before is begun from now on."""
        self.words[_REVOKED] += 1

    def not_begun(self) -> NotBegun:
        """What was claimed before the last revocation and had not been begun.  To be relied upon if it is said again
        SETTLED seconds later."""
        words, asked = self.words, None
        if words[_ASKED] and words[_ASKED_BEFORE] < words[_REVOKED] and words[_ASKED_QUEUE] < len(self.queues):
            asked = Asked(words[_ASKED], self.queues[words[_ASKED_QUEUE]], words[_NEWEST])
        claims = tuple(claim for thread in range(self.threads) for claim in self._not_begun_by(thread))
        return NotBegun(asked, claims)

    def _not_begun_by(self, thread: int) -> list[Claim]:
        start = self.start + thread * _THREAD
        at = start // _WORD
        batch, before, queue, token, claimed_at, count, length, _ = self.words[at : at + _WORDS]
        if not batch or before >= self.words[_REVOKED] or queue >= len(self.queues) or length > _TEXT:
            return []
        text = start + _WORDS * _WORD + _CLAIMS
        ids = bytes(self.bytes[text : text + length]).decode(errors="replace").split("\n")
        marks = self._marks(thread)[:count]
        return [
            Claim(id, self.queues[queue], token, b"", claimed_at=claimed_at)
            for id, begun in zip(ids, marks, strict=False)
            if not begun
        ]

    def _marks(self, thread: int) -> bytes:
        start = self.start + thread * _THREAD + _WORDS * _WORD
        return bytes(self.bytes[start : start + _CLAIMS])


class Thread:
    """What one thread of the child notes."""

    def __init__(self, shared: SharedMemory, number: int) -> None:
        self._shared, self._head = shared, shared.words
        start = shared.start + number * _THREAD
        text = start + _WORDS * _WORD + _CLAIMS
        self._words = shared.words[start // _WORD : start // _WORD + _WORDS]
        self._marks = shared.bytes[start + _WORDS * _WORD : text]
        self._text = shared.bytes[text : text + _TEXT]
        self._before = 0

    def takes(self, queue: str, claims: Sequence[Claim]) -> list[tuple[int, Claim]]:
        """These were claimed just now, in one call.  Returns each with its number for `begins`.

        Ids that are longer than they may be are not noted: then the parent does not know of the batch."""
        shared, words = self._shared, self._words
        words[_BATCH] = 0  # first: whoever reads this meanwhile knows that it is not whole
        self._before = shared.before
        text = "\n".join([claim.id for claim in claims]).encode(errors="replace")
        if not claims or len(claims) > _CLAIMS or len(text) > _TEXT:
            return [(0, claim) for claim in claims]
        words[_BEFORE], words[_QUEUE] = self._before, shared.queues.index(queue)
        words[_TOKEN], words[_CLAIMED_AT] = claims[0].token, claims[0].claimed_at
        words[_COUNT], words[_LENGTH], words[_SINCE] = len(claims), len(text), _now()
        self._marks[:] = bytes(_CLAIMS)
        self._text[: len(text)] = text
        words[_BATCH] = shared.next_number()
        return list(enumerate(claims))

    @property
    def batch(self) -> int:
        """The number of the batch that is noted."""
        return self._words[_BATCH]

    def gave_back(self, batch: int) -> None:
        """What of that batch had not been begun went back to its queue."""
        if self._words[_BATCH] == batch:
            self._words[_BATCH] = 0

    def begins(self, number: int) -> bool:
        """The job of that number is begun.  False: the claims were revoked, and it must not be."""
        self._marks[number] = 1
        return self._head[_REVOKED] == self._before


def _now() -> int:
    return int(monotonic() * 1000)
