"""The store: what its server tells, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from django.http import HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs.admin.common.console import Console
from django_jobs.admin.common.labels import Text
from django_jobs.formatting import duration, moment, number
from django_jobs.operations.diagnosis import ServerFacts, all_lines, look_at_server
from django_jobs.operations.diagnosis.rules import number_of

#: The labels of the levels of lines.
LEVELS: dict[str, Text] = {"error": gettext_lazy("error"), "warning": gettext_lazy("warning"), "ok": gettext_lazy("ok")}
#: Binary units of sizes.
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def store_page(console: Console) -> HttpResponse:
    """Show what `manage.py jobs doctor` knows of the store's server."""
    server = look_at_server()
    context = {
        "findings": [(each, LEVELS[each.level]) for each in all_lines(server)],
        "facts": [(label, value) for label, value in [*server_facts(server), *our_facts(console, server)] if value],
    }
    return console.render("store.html", _("Store"), context, here="store")


def server_facts(server: ServerFacts) -> Iterator[tuple[str, str | SafeString]]:
    about = server.about
    yield _("Server"), f"{about.get('server', 'redis').capitalize()} {known(about, 'version')}"
    yield _("Address"), about.get("address", "")
    yield _("Role"), role(about)
    uptime = number_of(about, "uptime_seconds")
    yield _("Running for"), duration(uptime * 1000) if uptime else ""
    limit = number_of(about, "maxmemory")
    used = {"used": size(about, "used_memory"), "limit": size(about, "maxmemory") if limit else ""}
    yield _("Memory in use"), _("%(used)s of %(limit)s") % used if limit else _("%(used)s, without a limit") % used
    yield _("Most memory used"), size(about, "peak_memory")
    yield _("Eviction policy"), known(about, "eviction_policy")
    yield _("Keys deleted by eviction"), count(about, "evicted_keys")
    yield _("Append-only file"), _("on") if about.get("append_only_file") == "on" else _("off")
    yield _("Last write to it"), outcome(about, "last_append_failed") if about.get("append_only_file") == "on" else ""
    yield _("Last snapshot"), moment(number_of(about, "last_save") * 1000)
    yield _("Last attempt at one"), outcome(about, "last_save_failed")
    yield _("Changes since the last snapshot"), count(about, "unsaved_changes")
    clients = {"n": count(about, "connected_clients"), "most": count(about, "maxclients")}
    yield _("Clients"), _("%(n)s of %(most)s") % clients if clients["most"] else clients["n"]
    yield _("Clients that wait in a blocking command"), count(about, "blocked_clients")


def role(about: Mapping[str, str]) -> str:
    """Return whether the server is a primary or a replica, and of how many others."""
    if about.get("role") == "master":
        return _("primary, with replicas: %(n)s") % {"n": count(about, "connected_replicas") or "0"}
    if about.get("role") == "slave":
        return _("replica; its link to the primary: %(state)s") % {"state": about.get("primary_link") or "?"}
    return known(about, "role")


def our_facts(console: Console, server: ServerFacts) -> Iterator[tuple[str, str]]:
    yield _("One call took"), duration(server.call_ms)
    yield _("Difference of the clocks"), _("%(seconds)s s") % {"seconds": f"{server.clock_off:+.2f}"}
    yield _("Queues"), number(len(console.counted.names))
    yield _("Jobs"), number(sum(console.counted.counts.values()))


def outcome(about: Mapping[str, str], key: str) -> str:
    """Return how something went that the server reports as failed or not."""
    return _("failed") if about.get(key) == "yes" else _("ok")


def known(about: Mapping[str, str], key: str) -> str:
    """Return a word of the description; a server that restricts this user may not tell it."""
    value = about.get(key, "unknown")
    return _("not told by the server") if value == "unknown" else value


def count(about: Mapping[str, str], key: str) -> str:
    """Return a number for people; "" if the server does not tell it."""
    return number(number_of(about, key)) if about.get(key, "").isdigit() else ""


def size(about: Mapping[str, str], key: str) -> str:
    """Return a number of bytes in a suitable unit; "" if it is not told."""
    if not about.get(key, "").isdigit():
        return ""
    value, unit = float(number_of(about, key)), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{number(round(value))} {UNITS[unit]}" if value >= 10 or not unit else f"{value:.1f} {UNITS[unit]}"
