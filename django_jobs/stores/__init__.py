"""Where jobs are stored: the STORE setting → one Store per process (`get_store`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_jobs.conf import Settings, get_settings, in_test_run, store_in_use
from django_jobs.stores.values.options import BACKLOG, StoreOptions

if TYPE_CHECKING:  # importing it takes a third of a second, which a command that touches no job should not pay
    from django_jobs.stores.redis import Store

_lock = Lock()
_current: Store | None = None


def get_store() -> Store:
    """Return the store that DJANGO_JOBS["STORE"] names: made at first use, shared by all threads of the process.

    In a test run it is the store that TEST_STORE names; by default one in memory, for each test its own."""
    store = _current
    return store if store is not None else _make_current()


def is_made() -> bool:
    """Return whether the store of this process is there: `get_store` then returns at once.  The stores of a test run
    never are, because the next test has another."""
    return _current is not None


def _make_current() -> Store:
    global _current
    settings, kind = get_settings(), store_in_use()
    if kind == "memory" and in_test_run():
        from django_jobs.stores.in_tests import store_of_test

        return store_of_test(store_options(settings))  # not kept: the next test has another
    with _lock:
        if _current is None:
            _current = make_store(replace(settings, store=kind))
        return _current


def make_store(settings: Settings) -> Store:
    """Build a store.  Raises ImproperlyConfigured, naming the value, if no kind of store matches STORE."""
    maker = maker_of(settings)
    if maker is None:
        raise ImproperlyConfigured(
            f"DJANGO_JOBS['STORE'] is {settings.store!r}. Use a URL such as 'redis://localhost:6379/0', 'cache:ALIAS', "
            "'embedded' (one machine) or 'memory' (tests)."
        )
    return maker(store_options(settings))


def maker_of(settings: Settings) -> Callable[[StoreOptions], Store] | None:
    """Return a function that builds the store of the settings, or None.  Imports its modules, the slowest part."""
    kind, _, _ = settings.store.partition(":")
    if kind == "memory":
        from django_jobs.stores.embedded.store import MemoryStore

        return MemoryStore
    if kind == "embedded":
        from django_jobs.stores.embedded.store import embedded_store

        return partial(embedded_store, settings.store, settings.base_dir)
    if kind == "cache" or "://" in settings.store:
        from django_jobs.stores.redis import Store

        return lambda options: Store.from_setting(settings.store, options=options)
    return None


def store_options(settings: Settings) -> StoreOptions:
    """Return the part of the settings that a store needs."""
    return StoreOptions(
        namespace=settings.namespace,
        history=settings.history,
        history_ttl=int(settings.history_ttl * 1000),
        dead=settings.dead,
        dead_ttl=int(settings.dead_ttl * 1000),
        idempotency=int(settings.idempotency * 1000),
        archive=settings.archive is not None,
        backlog=int((settings.archive or {}).get("BACKLOG", BACKLOG)),
    )


def use_store(store: Store | None) -> Store | None:
    """Replace the store of this process (for tests), and return the one before.  With None, the next get_store() reads
    the settings again."""
    global _current
    with _lock:
        before, _current = _current, store
        return before


def _reset(*, setting: str, **_: Any) -> None:
    # In this order: a thread that asks for the store meanwhile makes a new one, and is not given the closed one.
    if setting in {"DJANGO_JOBS", "DEBUG", "CACHES", "BASE_DIR"} and (before := use_store(None)) is not None:
        before.close()


setting_changed.connect(_reset)
