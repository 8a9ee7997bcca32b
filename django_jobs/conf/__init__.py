"""settings.DJANGO_JOBS → one frozen Settings.  Only this module reads Django's settings for this app."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_jobs.conf.queues import Queues, queue_settings, queues_of
from django_jobs.conf.queues import QueueSettings as QueueSettings

DAY = 86_400


@dataclass(frozen=True, slots=True)
class Settings:
    """DJANGO_JOBS with every default filled in.  Durations are in seconds, as in the setting."""

    store: str = "embedded"
    #: takes the place of `store` in a test run.
    test_store: str = "memory"
    namespace: str = "jobs"
    queues: Queues = field(default_factory=lambda: Queues({"default": QueueSettings("default")}))
    queue_order: str = "weighted"
    middleware: tuple[str, ...] = ()
    enqueue_middleware: tuple[str, ...] = ()
    on_commit: bool = True
    database: str = "default"
    #: False; True: what waits for a commit is kept in the database until the store has it; "always": every enqueue is.
    outbox: bool | str = False
    notify: tuple[str, ...] = ()
    #: None: see conf/release.py.
    release: str | None = None
    job_defaults: Mapping[str, Any] = field(default_factory=dict)
    #: pattern of job names → queue.
    routes: Mapping[str, str] = field(default_factory=dict)
    lease: float = 30.0
    #: 0: one for each CPU that the worker may use.
    processes: int = 0
    threads: int = 8
    shutdown_timeout: float = 25.0
    history: int = 1000
    history_ttl: float = DAY
    dead: int = 100_000
    dead_ttl: float = 180 * DAY
    #: for how long (s) a caller's id is remembered after its job has ended.
    idempotency: float = DAY
    max_payload: int = 262_144
    min_replicas: int = 0
    schedules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    archive: Mapping[str, Any] | None = None
    api: Mapping[str, Any] | None = None
    console: Mapping[str, Any] = field(default_factory=dict)
    eager: bool = False
    eager_propagates: bool = False
    time_zone: str = "UTC"
    base_dir: str = "."

    def route(self, name: str) -> str | None:
        """Return the queue of the first pattern in ROUTES that the name of a job matches; None if there is none."""
        return next((queue for pattern, queue in self.routes.items() if fnmatchcase(name, pattern)), None)


class HostSettings(NamedTuple):
    """The part of Django's own settings that must fit DJANGO_JOBS."""

    debug: bool
    caches: Mapping[str, Mapping[str, Any]]
    databases: frozenset[str]
    use_tz: bool = True
    has_base_dir: bool = True
    #: aliases of CACHES that Django itself uses as caches.
    used_caches: frozenset[str] = frozenset({"default"})
    #: aliases of DATABASES with ATOMIC_REQUESTS.
    atomic_requests: frozenset[str] = frozenset()
    is_asgi: bool = False


def read(raw: Mapping[str, Any]) -> Settings:
    """Fill in the defaults.  Values that are wrong are left out: checks.py reports them."""
    history, dead = raw.get("HISTORY") or {}, raw.get("DEAD") or {}
    queues = raw.get("QUEUES") or {"default": {}}
    return Settings(
        store=raw.get("STORE") or ("embedded" if django_settings.DEBUG else ""),
        test_store=raw.get("TEST_STORE") or "memory",
        namespace=raw.get("NAMESPACE", "jobs"),
        queues=queues_of({name: queue_settings(name, options or {}) for name, options in queues.items()}),
        queue_order=raw.get("QUEUE_ORDER", "weighted"),
        middleware=tuple(raw.get("MIDDLEWARE", ())),
        enqueue_middleware=tuple(raw.get("ENQUEUE_MIDDLEWARE", ())),
        on_commit=raw.get("ON_COMMIT", True),
        database=raw.get("DATABASE", "default"),
        outbox=raw.get("OUTBOX", False),
        notify=tuple(raw.get("NOTIFY", ())),
        release=raw.get("RELEASE"),
        job_defaults=dict(raw.get("JOB_DEFAULTS", {})),
        routes=dict(raw.get("ROUTES", {})),
        lease=raw.get("LEASE", 30),
        processes=raw.get("PROCESSES", 0),
        threads=raw.get("THREADS", 8),
        shutdown_timeout=raw.get("SHUTDOWN_TIMEOUT", 25),
        history=history.get("succeeded", 1000),
        history_ttl=history.get("ttl", DAY),
        dead=dead.get("max", 100_000),
        dead_ttl=dead.get("ttl", 180 * DAY),
        idempotency=raw.get("IDEMPOTENCY", DAY),
        max_payload=raw.get("MAX_PAYLOAD", 262_144),
        min_replicas=raw.get("MIN_REPLICAS", 0),
        schedules=dict(raw.get("SCHEDULES", {})),
        archive=raw.get("ARCHIVE"),
        api=raw.get("API"),
        console=raw.get("CONSOLE") or {},
        eager=raw.get("EAGER", False),
        eager_propagates=raw.get("EAGER_PROPAGATES", False),
        time_zone=django_settings.TIME_ZONE,
        base_dir=str(getattr(django_settings, "BASE_DIR", ".")),
    )


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """Return the current settings; they are read once, and again after override_settings.  Raises ImproperlyConfigured.

    A web server runs no checks, so this may be the first code to find that DJANGO_JOBS is not a dict.
    """
    raw = raw_setting()
    if isinstance(raw, dict):
        raw |= {key: Address(raw[key]) for key in ("STORE", "TEST_STORE") if isinstance(raw.get(key), str)}
    try:
        return read(raw)
    except (AttributeError, TypeError, ValueError) as error:
        raise ImproperlyConfigured(
            f"DJANGO_JOBS cannot be read ({error}). `manage.py check --tag django_jobs` says what is wrong with it."
        ) from error


class Address(str):
    """An address of a store.  Django's error pages and mails show settings by their repr: it has no password here."""

    __slots__ = ()

    def __repr__(self) -> str:
        scheme, separator, rest = self.partition("://")
        return repr(f"{scheme}://…@{rest.rpartition('@')[2]}") if separator and "@" in rest else super().__repr__()


def raw_setting() -> Any:
    """Return DJANGO_JOBS as it was written, of any type, for the checks."""
    return getattr(django_settings, "DJANGO_JOBS", {})


def store_in_use() -> str:
    """Return the STORE that this process uses: that of the settings, but TEST_STORE in a test run.

    A STORE that a test itself writes, with override_settings, is used as it is.  As with mail, a test run is what
    Django's test runner or pytest-django has set up."""
    now = get_settings()
    if not in_test_run():
        return now.store
    of_project: Any = django_settings.__dict__["_wrapped"]
    while hasattr(getattr(of_project, "default_settings", None), "is_overridden"):
        of_project = of_project.default_settings
    written = getattr(of_project, "DJANGO_JOBS", {})
    is_overridden = isinstance(written, Mapping) and written.get("STORE") != raw_setting().get("STORE")
    return now.store if is_overridden else now.test_store


def in_test_run() -> bool:
    """Return whether django.test.utils.setup_test_environment() is in effect.  Imports nothing."""
    state = getattr(sys.modules.get("django.test.utils"), "_TestState", None)
    return hasattr(state, "saved_data")


def settings_module() -> str:
    """Return the name of the project's settings module; "" if the settings were made without one."""
    return os.environ.get("DJANGO_SETTINGS_MODULE", "")


def in_debug() -> bool:
    """Return Django's own setting DEBUG."""
    return bool(django_settings.DEBUG)


def host_settings() -> HostSettings:
    """Return those of Django's own settings that the checks need."""
    return HostSettings(
        debug=in_debug(),
        caches=dict(getattr(django_settings, "CACHES", {})),
        databases=frozenset(django_settings.DATABASES) | {"default"},
        use_tz=bool(django_settings.USE_TZ),
        has_base_dir=bool(getattr(django_settings, "BASE_DIR", None)),
        used_caches=_used_caches(),
        atomic_requests=frozenset(
            name for name, options in django_settings.DATABASES.items() if options.get("ATOMIC_REQUESTS")
        ),
        is_asgi=bool(getattr(django_settings, "ASGI_APPLICATION", None)),
    )


def _used_caches() -> frozenset[str]:
    """`default` is what code means that names no alias; "staticfiles" and "template_fragments" have their names."""
    used = {"default", "staticfiles", "template_fragments"}
    if "cache" in str(django_settings.SESSION_ENGINE):
        used.add(str(django_settings.SESSION_CACHE_ALIAS))
    if any(path.startswith("django.middleware.cache.") for path in django_settings.MIDDLEWARE):
        used.add(str(django_settings.CACHE_MIDDLEWARE_ALIAS))
    return frozenset(used)


def task_backends() -> list[str]:
    """Return the dotted paths of Django's task backends, as in TASKS."""
    configured = getattr(django_settings, "TASKS", None) or {}
    return [str(entry.get("BACKEND", "")) for entry in configured.values()]


def given_modules() -> list[str] | None:
    """Return MODULES as it was written; None if it is missing or wrong (the checks report that)."""
    raw = raw_setting()
    modules = raw.get("MODULES") if isinstance(raw, Mapping) else None
    good = isinstance(modules, list | tuple) and all(isinstance(name, str) and name for name in modules)
    return list(modules) if good and modules is not None else None


def _forget(*, setting: str, **_: Any) -> None:
    if setting in {"DJANGO_JOBS", "DEBUG", "TIME_ZONE", "CACHES", "BASE_DIR"}:
        get_settings.cache_clear()


setting_changed.connect(_forget)
