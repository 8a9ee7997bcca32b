"""Findings as lines of `jobs doctor` and of the page of the store, with what is in order: each with what helps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from django.utils.translation import gettext as _

from django_jobs.conf import get_settings
from django_jobs.operations.diagnosis.facts import ServerFacts
from django_jobs.operations.diagnosis.finding import Finding
from django_jobs.operations.diagnosis.report import told
from django_jobs.operations.diagnosis.rules import server_findings

#: The oldest server version that has the commands used by the scripts.
OLDEST = (6, 2)
#: Causes that are errors for `doctor`: they can lose jobs or double them, or keep them from running until a person
#: acts.  A release that runs `doctor` between two versions must not stop because no worker runs at that moment.
ERRORS = frozenset({"read_only", "not_saved", "evicts", "full", "unknown", "no_worker", "outbox_off"})
#: Of these, what workers mend, and what only waits for a worker that knows the job or serves the queue.
BY_WORKERS = frozenset({"full", "unknown", "no_worker"})


class CheckLine(NamedTuple):
    """One result.  `level`: "ok" | "warning" | "error"."""

    level: str
    subject: str
    says: str
    #: Workers mend this, so it is no reason to start none.
    by_workers: bool = False


def line_of(found: Finding) -> CheckLine:
    """Return a finding with what helps, in the language that is active."""
    is_error = found.cause in ERRORS or (found.cause == "server_clock" and found.severity == "error")
    says = f"{told(found)} {found.act}".strip()
    return CheckLine("error" if is_error else "warning", found.topic, says, found.cause in BY_WORKERS)


def server_lines(server: ServerFacts) -> Iterator[CheckLine]:
    """Yield what is right with the server, and what is wrong without being a finding, in the active language."""
    yield _version(server.about)
    if server.about.get("append_only_file") == "on":
        yield CheckLine("ok", "persistence", _("The append-only file is on."))
    policy = server.about.get("eviction_policy")
    if policy in {"noeviction", "unknown"}:
        yield CheckLine("ok", "eviction", _("maxmemory-policy is %(policy)s.") % {"policy": policy})


def all_lines(server: ServerFacts) -> list[CheckLine]:
    """Return all lines about the server, worst first."""
    lease = get_settings().lease * 1000
    found = list(map(line_of, server_findings(server.about, server.clock_off, lease)))
    if not any(each.subject == "clock" for each in found):
        said = _("The clock of the store differs from this machine's by %(seconds)s s.")
        found.append(CheckLine("ok", "clock", said % {"seconds": f"{server.clock_off:+.2f}"}))
    return sorted([*found, *server_lines(server)], key=lambda each: ("error", "warning", "ok").index(each.level))


def _version(about: Mapping[str, str]) -> CheckLine:
    version = about.get("version", "unknown")
    said = _("%(server)s %(version)s at %(address)s") % {
        "server": about.get("server", "?"),
        "version": version,
        "address": about.get("address", "?"),
    }
    parts = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    if "valkey" not in about.get("server", "") and parts and tuple(parts) < OLDEST:
        return CheckLine("error", "version", f"{said}. {_('Use Redis 6.2 or later, or Valkey.')}")
    return CheckLine("ok", "store", said)
