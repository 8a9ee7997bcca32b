"""A plain model of a store: what must be true after each call."""

from __future__ import annotations

from dataclasses import dataclass, field

from django_jobs.core.values import FINISHED, WAITING, Controls, State


@dataclass
class Entry:
    """One job as the model knows it."""

    record: bytes
    controls: Controls
    name: str
    state: State
    due: int = 0
    token: int = 0
    worker: str = ""
    stop: bool = False
    #: an attempt has begun, or a person wanted it to run: it does not expire any more.
    begun: bool = False
    failures: int = 0
    crashes: int = 0
    #: a whole worker died while it held the job; a worker holds the job and may not begin it yet.
    suspect: bool = False
    waits: bool = False


@dataclass
class Model:
    """What must be true; `locks` says who holds a key."""

    jobs: dict[str, Entry] = field(default_factory=dict)
    locks: dict[str, str] = field(default_factory=dict)
    leases: dict[str, int] = field(default_factory=dict)
    #: id → worker and token of an attempt that was killed and whose worker may still be at it.
    endings: dict[str, tuple[str, int]] = field(default_factory=dict)

    def move(self, id: str, state: State, **changes: object) -> None:
        entry = self.jobs[id]
        before = entry.state
        entry.state, entry.token, entry.worker, entry.stop, entry.waits = state, 0, "", False, False
        for name, value in changes.items():
            setattr(entry, name, value)
        key, mode = entry.controls.unique, entry.controls.unique_mode
        if key:
            held = self.locks.get(key) == id
            if held and (state in FINISHED or (state is State.RUNNING and mode == "queued")):
                del self.locks[key]
            elif before not in WAITING and state in WAITING:
                self.locks.setdefault(key, id)

    def forget(self, id: str) -> None:
        key = self.jobs.pop(id).controls.unique
        if key and self.locks.get(key) == id:
            del self.locks[key]
