"""The remote job types that this process knows.  A web process reads them from the database.  The processes of
`runworkers` get them from their maintenance process (worker/maintenance/process.py), so that a database that does not
answer delays no job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from time import monotonic
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import Error

from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.exceptions import NotKnownYet
from django_jobs.remote.job_types import RemoteType, django_queues, make_definition, pull_only, read_rows
from django_jobs.runtime.complaints import Complaints

logger = logging.getLogger("django_jobs.remote")

#: Seconds between two reads: a new type is known everywhere within this time plus the length of a claim.
REFRESH = 3.0
#: For how many seconds an unknown name is remembered; longer than a job of that name is delayed.
MISSED = 15.0
#: How many unknown names are remembered, and so can be looked for at the same time.
MOST_MISSED = 1000

#: Called with the time when a read began (monotonic, one clock for all processes of a machine) and its result.
Listener = Callable[[float, Sequence[RemoteType]], object]


class Known:
    """The types of the last read, and the definitions made from them."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self.lock = Lock()
        #: True if another process reads: then nothing in this process waits for a database.
        self.is_told = False
        self.listener: Listener | None = None
        #: when the last read began, and when the last successful one began; None: never.
        self.tried_at: float | None = None
        self.read_at: float | None = None
        self.types: Mapping[str, RemoteType] = {}
        self.names: frozenset[str] = frozenset()
        self.pull_queues: frozenset[str] = frozenset()
        self.definitions: dict[RemoteType, JobDefinition] = {}
        #: name → when it was first asked for and not found.
        self.missed: dict[str, float] = {}
        self._complaints = Complaints()

    def refresh(self, oldest: float = REFRESH) -> Mapping[str, RemoteType]:
        """Return the types.  Reads them again if this process reads and the last read is `oldest` seconds old."""
        if get_settings().api is None:
            return {}
        # Until the first read has ended, no type is known: a caller waits for that read.
        if self._is_due(oldest) or (self.read_at is None and not self.is_told and self.lock.locked()):
            with self.lock:
                if self._is_due(oldest):
                    self.read()
        return self.types

    def _is_due(self, oldest: float) -> bool:
        return not self.is_told and (self.tried_at is None or self.clock() - self.tried_at >= oldest)

    def read(self) -> None:
        """Read from the database; if that fails, the known types stay."""
        self.tried_at = began = self.clock()
        try:
            types = read_rows()
        except ImproperlyConfigured:
            types = []  # this project has no database, so there are no rows
        except Error as error:
            if self._complaints.is_new(error):
                logger.warning(
                    "Remote job types cannot be read; the known ones (%d) stay in use: %s", len(self.types), error
                )
            return
        self._complaints.is_over()
        self.replace_types(began, types)
        if self.listener is not None:
            self.listener(began, types)

    def replace_types(self, at: float, types: Iterable[RemoteType]) -> None:
        """Replace the types by those that a read which began at `at` found."""
        self.types = {kind.name: kind for kind in types}
        self.names = frozenset(self.types)
        registry.changed()
        self.pull_queues = pull_only(self.types.values())
        # A copy: other threads add definitions meanwhile, and a dict that grows cannot be iterated.
        made = self.definitions.copy()
        self.definitions = {kind: each for kind, each in made.items() if self.types.get(kind.name) == kind}
        self.read_at = at

    def definition_of(self, name: str) -> JobDefinition | None:
        """Return the definition of a remote type, the same object until its row changes; None if there is no such type.

        Raises NotKnownYet if the types were not read since the name was first asked for: the type may be new.
        """
        if get_settings().api is None:
            return None
        kind = self.refresh().get(name)
        if kind is None:
            asked_at = self._missed_at(name)
            kind = self.types.get(name)
            if kind is None:
                if self.read_at is None or self.read_at < asked_at:
                    raise NotKnownYet(f"No job is named {name!r}, and remote job types cannot be read.")
                return None
        definition = self.definitions.get(kind)
        if definition is None:
            definition = self.definitions.setdefault(kind, make_definition(kind))
        return definition

    def look_for(self, names: Iterable[str]) -> None:
        """Read again at once if some of these names are new, so that asking for each of them reads no more.

        Does nothing if another process reads."""
        if get_settings().api is None or self.is_told:
            return
        found = self.refresh()
        # All names are noted before the read begins.
        if sum(self._note_missed(name) for name in {*names} - found.keys() if not registry.has(name)):
            self.refresh(0.0)

    def _missed_at(self, name: str) -> float:
        """Return when this name was first asked for.  If it is new and this process reads, read again at once."""
        if self._note_missed(name):
            self.refresh(0.0)
        return self.missed.get(name, -1.0)

    def _note_missed(self, name: str) -> bool:
        """Note that this name was asked for and not found.  Returns whether it is new; False also if too many are
        noted."""
        now = self.clock()
        if now - self.missed.get(name, -MISSED) < MISSED:
            return False
        if len(self.missed) >= MOST_MISSED:
            self.missed = {name: at for name, at in self.missed.copy().items() if now - at < MISSED}
        if len(self.missed) >= MOST_MISSED:
            return False
        self.missed[name] = now
        return True

    def left_to_pull_workers(self, queues: Iterable[str]) -> frozenset[str]:
        """Return those of these queues that only pull workers serve; before the first read, all that may be theirs."""
        if get_settings().api is None:
            return frozenset()
        self.refresh()
        return frozenset(queues) - django_queues() if self.read_at is None else self.pull_queues


_known = Known()


def known() -> Mapping[str, RemoteType]:
    """Return the remote job types by name."""
    return _known.refresh()


def definition_of(name: str) -> JobDefinition | None:
    """Return the job definition of a remote type; None if there is no such type.  For registry.add_resolver."""
    return _known.definition_of(name)


def look_for(names: Iterable[str]) -> None:
    """Prepare for `definition_of` of many names: at most one read for all those that are unknown."""
    _known.look_for(names)


def type_names() -> frozenset[str]:
    """Return the names of the types as of the last read.  For registry.add_resolver."""
    return _known.names


def pull_queues() -> frozenset[str]:
    """Return the queues that are known to be served by pull workers only."""
    return _known.pull_queues if known() else frozenset()


def left_to_pull_workers(queues: Iterable[str]) -> frozenset[str]:
    """Return those of these queues that `runworkers` must leave to workers that fetch over HTTP."""
    return _known.left_to_pull_workers(queues)


def forget() -> None:
    """Read again at the next call: a type was just written, or the settings changed."""
    _known.tried_at = None


# -- in the processes of `runworkers` --------------------------------------------------


def be_told() -> None:
    """From now on, this process and those that it forks do not read the database themselves."""
    _known.is_told = True


def replace_types(at: float, types: Iterable[Mapping[str, Any]]) -> None:
    """Take over types from another process: what its listener was given, each type as a mapping of its fields."""
    _known.replace_types(at, [RemoteType(**fields) for fields in types])


def tell(listener: Listener) -> None:
    """Call `listener` after each read."""
    _known.listener = listener


def read() -> None:
    """Read now, and call the listener."""
    _known.read()
