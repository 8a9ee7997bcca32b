"""Checks of DJANGO_JOBS["STORE"]: is it valid, and does another part of the project endanger it?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured

from django_jobs.conf import HostSettings, host_settings, raw_setting
from django_jobs.exceptions import StoreMisconfigured

#: The directory of the embedded store, below BASE_DIR.
EMBEDDED = ".state/jobs"
#: The first bytes of a database of SQLite, and the name that the store of releases before 0.3 had by default.
OLD_RELEASE, OLD_FILE = b"SQLite format 3", "jobs.sqlite3"
#: Host (or path of a socket), port and database.
_Place = tuple[str, int, str]
_ESCAPE = "A password with / # ? or % in it must be percent-encoded."
_ONE = f"://user:password@host:6379/0'; user, password and port may be left out. {_ESCAPE}"
_SENTINELS = f"://user:password@host1:26379,host2:26379/mymaster/0'; user and password may be left out. {_ESCAPE}"
_CLUSTER = f"://user:password@host1:6379,host2:6379'; user and password may be left out. {_ESCAPE}"
#: The form of each kind of address.
_FORMS = {
    "redis": f"Write 'redis{_ONE}",
    "rediss": f"Write 'rediss{_ONE}",
    "unix": "Write 'unix:///run/redis/redis.sock?db=0', with three slashes.",
    "redis+sentinel": f"Write 'redis+sentinel{_SENTINELS}",
    "rediss+sentinel": f"Write 'rediss+sentinel{_SENTINELS}",
    "redis+cluster": f"Write 'redis+cluster{_CLUSTER}",
    "rediss+cluster": f"Write 'rediss+cluster{_CLUSTER}",
}
SCHEMES = tuple(_FORMS)
_EXAMPLES = "'redis://localhost:6379/0', 'cache:default', 'embedded' (one machine) or 'memory' (tests)"


def check_store(store: Any, around: HostSettings) -> list[CheckMessage]:
    """E007, E012, W001 and W005."""
    if not store and around.debug:
        store = "embedded"
    if not store:
        message = "DJANGO_JOBS['STORE'] is missing; without DEBUG there is no default."
        return [Error(message, hint=f"Set it to {_EXAMPLES}.", id="django_jobs.E007")]
    if not isinstance(store, str):
        return []  # E003 reports this
    kind, _, rest = store.partition(":")
    if kind == "cache":
        return _cache_alias(rest, around)
    if kind == "embedded":
        return _embedded(store, around)
    if kind == "memory":
        return []
    if kind not in SCHEMES:
        # The value may contain a password: only its scheme is shown.
        message = f"DJANGO_JOBS['STORE'] starts with {kind!r}, which is not a known kind of store."
        return [Error(message, hint=f"Use {_EXAMPLES}.", id="django_jobs.E007")]
    if wrong := address_problem(store):
        problem, remedy = wrong
        message = f"DJANGO_JOBS['STORE'] is a {kind!r} address that {problem}."
        return [Error(message, hint=remedy, id="django_jobs.E007")]
    return _shared_with_caches({_place(store)}, around.caches)


def _embedded(store: str, around: HostSettings) -> list[CheckMessage]:
    address = embedded_address(store)
    if address is None:
        message = "DJANGO_JOBS['STORE'] has an option of the embedded store that is not known."
        hint = "Write 'embedded', 'embedded:/path/of/a/directory' or 'embedded:/path?fsync=no'."
        return [Error(message, hint=hint, id="django_jobs.E007")]
    if not (around.has_base_dir or address.directory.startswith("/")):
        message = (
            "DJANGO_JOBS['STORE'] is 'embedded', and the settings have no BASE_DIR: the store is in the current folder."
        )
        hint = "Set BASE_DIR, or write 'embedded:/path/of/a/directory': web servers and workers must use the same one."
        return [Warning(message, hint=hint, id="django_jobs.W005")]
    return []


class EmbeddedAddress(NamedTuple):
    """What STORE says of an embedded store."""

    #: relative to BASE_DIR, unless it is absolute.
    directory: str
    #: "always": each command is on disk before it is answered; "no": the system writes it there later.
    fsync: str


def embedded_address(setting: str) -> EmbeddedAddress | None:
    """Read "embedded", "embedded:/path" or "embedded:/path?fsync=no"; None if it has other options."""
    path, question, query = setting.partition(":")[2].rpartition("?")
    if not question:
        path, query = query, "fsync=always"
    name, _, value = query.partition("=")
    if name != "fsync" or value not in ("always", "no"):
        return None
    return EmbeddedAddress(path or EMBEDDED, value)


def embedded_place(setting: str, base_dir: str) -> tuple[Path, str]:
    """Return the directory of an embedded store, and how it flushes.  Raises ImproperlyConfigured."""
    address = embedded_address(setting)
    if address is None:
        raise ImproperlyConfigured(f"DJANGO_JOBS['STORE'] is {setting!r}: the only option is ?fsync=no.")
    return Path(base_dir, address.directory).absolute(), address.fsync


def refuse_old_file(path: Path) -> None:
    """Raise StoreMisconfigured if the jobs of an older release are there: they must not be forgotten silently."""
    for file in (path, path.parent / OLD_FILE):
        with suppress(OSError), file.open("rb") as opened:
            if opened.read(len(OLD_RELEASE)) == OLD_RELEASE:
                raise StoreMisconfigured(
                    f"{file} holds the jobs of an older release, which kept them in SQLite. The embedded store is now "
                    "a directory with a private Valkey. Run the remaining jobs with the older release (`manage.py "
                    "runworkers --burst`) and delete the file, or name a directory elsewhere: 'embedded:/path'."
                )


def check_deployment(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """W002, with `check --deploy`: settings that are only for tests and development."""
    raw = raw_setting()
    if not isinstance(raw, Mapping) or host_settings().debug:
        return []
    found: list[CheckMessage] = []
    if raw.get("EAGER"):
        message = "DJANGO_JOBS['EAGER'] is on: jobs run inside the request that enqueues them, and are not retried."
        found.append(Warning(message, hint="Use it only in tests and development.", id="django_jobs.W002"))
    if raw.get("STORE") == "memory":
        message = "DJANGO_JOBS['STORE'] is 'memory': waiting jobs are lost when the process ends."
        found.append(Warning(message, hint="Use a URL, 'cache:ALIAS' or 'embedded'.", id="django_jobs.W002"))
    return found


def address_problem(url: str) -> tuple[str, str] | None:
    """Return what is wrong with an address, and the remedy, without quoting it: any part may belong to a password that
    is not escaped."""
    problem = _wrong_form(url)
    return (problem, _FORMS[url.partition(":")[0]]) if problem else None


def _wrong_form(url: str) -> str | None:
    """redis-py reads a database that is not a number as 0, so the mistake would go unnoticed."""
    kind, _, rest = url.partition(":")
    if not rest.startswith("//"):
        return "has no // after the colon"
    if "#" in url or any(letter.isspace() for letter in url):
        return "has a space or # in it"
    location, *parts = rest[2:].partition("?")[0].split("/")
    path = [part for part in parts if part]
    location = location.rpartition("@")[2]
    if kind == "unix":
        return None if path and not location else "has no path"
    hosts = location.split(",")
    if len(hosts) > 1 and kind in ("redis", "rediss"):
        return "names several hosts, which only redis+sentinel and redis+cluster allow"
    if not all(_has_good_port(host) for host in hosts):
        return "has a port that is not a number"
    if "+" in kind and not all(hosts):
        return "lacks the name of a host"
    if kind.endswith("+sentinel") and not path:
        return "does not name the service"
    database = path[1:] if kind.endswith("+sentinel") else path
    if database in ([], ["0"]):
        return None
    if kind.endswith("+cluster"):
        return "names a database, although a Cluster has only one"
    return None if len(database) == 1 and database[0].isdecimal() else "does not end in the number of a database"


def _has_good_port(host: str) -> bool:
    try:
        return urlsplit(f"//{host}").port != 0
    except ValueError:
        return False


def _cache_alias(alias: str, around: HostSettings) -> list[CheckMessage]:
    cache = around.caches.get(alias)
    if cache is None:
        message = f"DJANGO_JOBS['STORE'] is 'cache:{alias}', but CACHES has no {alias!r}."
        return [Error(message, hint=f"CACHES has: {', '.join(around.caches) or 'nothing'}.", id="django_jobs.E012")]
    if not str(cache.get("BACKEND", "")).startswith("django_redis."):
        message = f"DJANGO_JOBS['STORE'] is 'cache:{alias}', whose backend is {cache.get('BACKEND')!r}."
        return [
            Error(message, hint="Use an alias with 'django_redis.cache.RedisCache', or a URL.", id="django_jobs.E012")
        ]
    others = {name: other for name, other in around.caches.items() if name != alias}
    # An alias that only the jobs use is no cache.
    return [_shared(alias)] if alias in around.used_caches else _shared_with_caches(_places(cache), others)


def _shared_with_caches(places: set[_Place], caches: Mapping[str, Mapping[str, Any]]) -> list[CheckMessage]:
    return [_shared(alias) for alias, cache in caches.items() if not places.isdisjoint(_places(cache))][:1]


def _places(cache: Mapping[str, Any]) -> set[_Place]:
    """Return the databases of a Redis cache; none for another kind of cache."""
    if not any(name in str(cache.get("BACKEND", "")).lower() for name in ("redis", "valkey")):
        return set()
    options = cache.get("OPTIONS") or {}
    pool = options.get("CONNECTION_POOL_KWARGS") or {}
    database = str(options.get("db", pool.get("db", "0")))
    locations = cache.get("LOCATION") or ()
    if isinstance(locations, str):
        locations = locations.replace(";", ",").split(",")
    return {_place(str(location), database) for location in locations}


def _shared(alias: str) -> CheckMessage:
    return Warning(
        f"The jobs are in the same Redis database as CACHES[{alias!r}]. cache.clear() deletes them, and an eviction "
        "policy for caches drops jobs.",
        hint="Use another database for the jobs (another number after the last /), or better a separate server.",
        id="django_jobs.W001",
    )


def _place(url: str, database: str = "0") -> _Place:
    """Return host, port and database, however they are written; of a cluster or sentinel, the first host.

    `database`: the one that the options name.  As in redis-py, that of the address goes before it."""
    parts = urlsplit(url.split(",")[0])
    asked = parse_qs(parts.query).get("db")
    if parts.scheme == "unix":
        return parts.path, 0, asked[0] if asked else database
    try:
        port = parts.port or 6379
    except ValueError:
        port = 0
    host = (parts.hostname or "localhost").replace("127.0.0.1", "localhost")
    return host, port, asked[0] if asked else parts.path.strip("/") or database
