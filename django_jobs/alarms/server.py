"""What the store tells of its server, and what is wrong with that, each with its remedy: for `doctor` and for
the page of the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import perf_counter, time
from typing import NamedTuple

from django.utils.translation import gettext as _

from django_jobs.alarms.rules import Alarm, server_alarms
from django_jobs.alarms.texts import remedy_of, subject_of, text_of
from django_jobs.conf import get_settings
from django_jobs.stores import get_store

#: The oldest server version that has the commands used by the scripts.
OLDEST = (6, 2)
#: If clocks differ by more (s), times in the admin are misleading; if by half a lease, they are wrong.
CLOCK = 2.0
#: Alarms that are errors: they can lose jobs or double them, or keep them from running until a person acts.
ERRORS = frozenset({"read_only", "not_saved", "evicts", "full", "unknown", "no_worker"})


class Finding(NamedTuple):
    """One result.  `level`: "ok" | "warning" | "error"."""

    level: str
    subject: str
    says: str
    #: Workers mend this, so it is no reason to start none.
    by_workers: bool = False


class Server(NamedTuple):
    """What was read of the store, once."""

    #: as Store.describe.
    about: Mapping[str, str]
    #: s, to the hundredth: how far the store's clock is before this machine's.
    clock_off: float
    #: ms: how long one call took, to the store and back.
    call_ms: float


def look_at_server() -> Server:
    """Read the description and the clock of the store: two calls.  Raises StoreError."""
    store = get_store()
    about = store.describe()
    began = perf_counter()
    at = store.now()
    took = perf_counter() - began
    # The store read its clock about half a call ago.
    return Server(about, round(at / 1000 - (time() - took / 2), 2) or 0.0, took * 1000)


def server_findings(server: Server) -> Iterator[Finding]:
    """Yield what is right, and what is wrong without being an alarm, in the language that is active."""
    yield from _version(server.about)
    yield from _persistence(server.about)
    policy = server.about.get("eviction_policy")
    if policy in {"noeviction", "unknown"}:
        yield Finding("ok", "eviction", _("maxmemory-policy is %(policy)s.") % {"policy": policy})
    yield _clock(server.clock_off)


def alarm_finding(alarm: Alarm) -> Finding:
    """Return an alarm as a finding, with its remedy, in the language that is active."""
    level = "error" if alarm.kind in ERRORS else "warning"
    return Finding(level, subject_of(alarm), f"{text_of(alarm)} {remedy_of(alarm)}".strip())


def all_findings(server: Server) -> list[Finding]:
    """Return the findings and the alarms about the server, worst first."""
    found = [alarm_finding(alarm) for alarm in server_alarms(server.about)] + list(server_findings(server))
    return sorted(found, key=lambda each: ("error", "warning", "ok").index(each.level))


def _version(about: Mapping[str, str]) -> Iterator[Finding]:
    version = about.get("version", "unknown")
    said = _("%(server)s %(version)s at %(address)s") % {
        "server": about.get("server", "?"),
        "version": version,
        "address": about.get("address", "?"),
    }
    parts = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    if "valkey" not in about.get("server", "") and parts and tuple(parts) < OLDEST:
        yield Finding("error", "version", f"{said}. {_('Use Redis 6.2 or later, or Valkey.')}")
    else:
        yield Finding("ok", "store", said)


def _persistence(about: Mapping[str, str]) -> Iterator[Finding]:
    """Report that the store persists jobs; faults in it are alarms."""
    if about.get("append_only_file") == "on":
        yield Finding("ok", "persistence", _("The append-only file is on."))


def _clock(off: float) -> Finding:
    """Say whether this machine and the store have the same time."""
    said = _("The clock of the store differs from this machine's by %(seconds)s s.") % {"seconds": f"{off:+.2f}"}
    level = "error" if abs(off) > get_settings().lease / 2 else "warning" if abs(off) > CLOCK else "ok"
    return Finding(level, "clock", said if level == "ok" else f"{said} {_('Run NTP on both.')}")
