"""The messages between the processes of one worker.  Each is a dataclass, built and read by the names of its fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar

#: Names a message's class in its JSON object.  No name of a queue or a job may begin with it.
_CLASS = "@"


class Message:
    """Any message."""

    __slots__ = ()
    #: Must it arrive, however late?  The sender says most messages again; it sends these once.
    must_arrive: ClassVar[bool] = False


class Instruction(Message):
    """A message that changes what a child does from now on."""

    __slots__ = ()
    must_arrive = True


@dataclass(frozen=True, slots=True)
class ClaimId:
    """Identifies one claim."""

    queue: str
    id: str
    token: int


# -- parent → child ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drain(Instruction):
    """Claim nothing more, hand back what has not begun, ask the running jobs to stop, and end."""


@dataclass(frozen=True, slots=True)
class Retire(Instruction):
    """Take no more jobs, and end when the running jobs have ended.  To the maintenance process: start no more tasks."""


@dataclass(frozen=True, slots=True)
class Close(Instruction):
    """Claim nothing until `Open`."""


@dataclass(frozen=True, slots=True)
class Open(Instruction):
    """Claim again."""


@dataclass(frozen=True, slots=True)
class Stop(Message):
    """Ask one job to stop."""

    queue: str
    id: str


@dataclass(frozen=True, slots=True)
class Ping(Message):
    """Answer with a `ChildStatus` that has this number."""

    serial: int


@dataclass(frozen=True, slots=True)
class CheckClaims(Message):
    """Check whether the claims in this queue are still valid, and answer with `ClaimsChecked`."""

    queue: str


@dataclass(frozen=True, slots=True)
class ClaimsInStore(Message):
    """The claims that the store has for this child; it answers with `ClaimsCompared`."""

    #: queue → token → number of claims.  JSON makes texts of the tokens.
    held: Mapping[str, Mapping[Any, int]]
    #: queues that could not be read.
    unasked: Sequence[str]


# -- parent → alone child ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MayRunSuspects(Instruction):
    """From now on, this child may run suspects."""


@dataclass(frozen=True, slots=True)
class YieldSuspects(Instruction):
    """Run no more suspects, and answer with `Yielded`."""


@dataclass(frozen=True, slots=True)
class MayBegin(Instruction):
    """The answer to `WaitsToBegin`: whether the job may begin, or is handed back."""

    claim: ClaimId
    begins: bool


# -- child → parent ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Busy(Message):
    """An alone child has claimed jobs.  Which of them runs, it shows in shared memory: see batch_memory.py."""


@dataclass(frozen=True, slots=True)
class Idle(Message):
    """An alone child waits for jobs; or the claim that it announced with `WaitsToBegin` has ended."""


@dataclass(frozen=True, slots=True)
class WaitsToBegin(Message):
    """An alone child may not begin this claim before the parent answers with `MayBegin`."""

    claim: ClaimId


@dataclass(frozen=True, slots=True)
class Yielded(Message):
    """The child runs no suspects and will claim none."""


@dataclass(frozen=True, slots=True)
class Retiring(Message):
    """The child takes no more jobs and ends by itself."""


@dataclass(frozen=True, slots=True)
class ClaimsChecked(Message):
    """The answer to `CheckClaims`: the ids of running jobs whose claims are lost."""

    queue: str
    lost: Sequence[str]


@dataclass(frozen=True, slots=True)
class ClaimsCompared(Message):
    """The child has compared the last `ClaimsInStore` with its own claims."""


@dataclass(frozen=True, slots=True)
class ChildStatus(Message):
    """The answer to `Ping`."""

    #: the number of the ping; 0 before the first answer.
    serial: int = 0
    #: could it end now without losing anything?
    idle: bool = False
    #: how many jobs it has claimed so far.
    claimed: int = 0
    #: its running jobs as the worker publishes them: id, name, queue, since (ms).
    jobs: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class TypesReceived(Message):
    """The child knows the last `RemoteTypes`."""


# -- maintenance process → parent → child --------------------------------------------


@dataclass(frozen=True, slots=True)
class RemoteTypes(Message):
    """The remote job types; a child answers with `TypesReceived`."""

    #: when the read began that found them (monotonic seconds).
    at: float
    #: the fields of each `RemoteType`.
    types: Sequence[Mapping[str, Any]]


# -- parent → maintenance process ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpareExpiredLeases(Message):
    """Recover no expired leases for that many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SendSignal(Message):
    """Send this signal to its receivers."""

    #: see `signal_events.to_words`.
    signal_event: Mapping[str, Any]


# -- maintenance process → parent ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alive(Message):
    """The main thread of the maintenance process is not stuck."""


@dataclass(frozen=True, slots=True)
class TaskHasRun(Message):
    """One of the extra tasks has run once, or what lost workers held at the start is taken back."""


@dataclass(frozen=True, slots=True)
class SignalBegun(Message):
    """The first of the signals that were given is being sent; if this process dies, it is not sent again."""


@dataclass(frozen=True, slots=True)
class SignalSent(Message):
    """That signal has been sent."""


_CLASSES = {each.__name__: each for each in list(vars().values()) if isinstance(each, type) and is_dataclass(each)}


def encode(message: Message) -> bytes:
    """Return the message as one line of JSON."""
    return json.dumps(message, default=_with_class).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Return the message that `encode` was given; lists instead of tuples, and texts as keys."""
    message: Message = json.loads(line, object_hook=_without_class)
    return message


def _with_class(value: Any) -> dict[str, Any]:
    return {_CLASS: type(value).__name__, **{each.name: getattr(value, each.name) for each in fields(value)}}


def _without_class(found: dict[str, Any]) -> Any:
    name = found.pop(_CLASS, None)
    return found if name is None else _CLASSES[name](**found)
