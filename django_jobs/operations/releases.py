"""The releases that workers have reported, and when each first appeared."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from django_jobs.core.outcome import clean
from django_jobs.serialization.checked import is_moment
from django_jobs.stores import get_store

if TYPE_CHECKING:
    from django_jobs.stores.redis import Store

#: The document: release → when a worker first reported it (ms).
DOCUMENT = "releases"
#: Releases that are remembered, the newest ones.
MOST = 100
#: Seconds.
MINUTE = 60.0
_lately: WeakKeyDictionary[Store, tuple[float, dict[str, int]]] = WeakKeyDictionary()


def lately() -> dict[str, int]:
    """Return the same for charts, as this process read it within the last minute: pages are refreshed all the time."""
    store, now = get_store(), monotonic()
    until, found = _lately.get(store, (0.0, {}))
    if now >= until:
        found = releases()
        _lately[store] = now + MINUTE, found
    return found


def releases() -> dict[str, int]:
    """Return release → when it first appeared (ms by the store's clock), oldest first."""
    return read()[0]


def read() -> tuple[dict[str, int], list[str]]:
    """Return the releases, and the entries that cannot be read."""
    found = get_store().get_document(DOCUMENT)
    known = {clean(name, 200): at for name, at in found.items() if is_moment(at)}
    in_order = dict(sorted(known.items(), key=lambda pair: (pair[1], pair[0])))
    return in_order, [name for name, at in found.items() if not is_moment(at)]


def noting(name: str) -> Callable[[], int]:
    """Return a task of a worker that notes its release once, if it is new.  Another worker may do so at the same time:
    the first has an effect."""
    is_noted = not name

    def note() -> int:
        nonlocal is_noted
        if is_noted:
            return 0
        known, broken = read()
        if name not in known:
            over = [*broken, *list(known)[: max(0, len(known) + 1 - MOST)]]
            changes = dict.fromkeys(over) | {name: get_store().now()}
            get_store().update_document(DOCUMENT, changes, expected={name: None} if name not in broken else {})
        is_noted = True
        return 0

    return note
