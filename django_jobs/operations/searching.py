"""Searches for text that take longer than a page may: they go on in the background, to the end.

A search is one entry of the fleet's document "searches".  It is driven like a bulk operation: by the maintenance
processes of workers (`tick`), and by the page that shows it.  Each step replaces the whole entry, so two drivers at a
time do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from json import dumps
from time import monotonic
from typing import Any

from django_jobs.browse.counts import JobCounts
from django_jobs.browse.match import Match
from django_jobs.browse.search import Search, begin, go_on
from django_jobs.core.values import State
from django_jobs.exceptions import StoreError
from django_jobs.serialization.checked import is_count, is_moment, texts_in, typed
from django_jobs.stores import get_store
from django_jobs.stores.values.documents import BROKEN

DOCUMENT = "searches"
#: A search runs this long (s) in the request that starts it: most end before the page is shown, and are not stored.
FIRST_STRETCH = 1.0
#: The same (s) for each further request, if nobody has driven it for DRIVEN ms; so long a result is shown again, too.
STRETCH = 0.5
DRIVEN = 10_000
#: How long (ms) a search is kept after its last step, and how many are kept.
KEEP, KEEP_NUMBER = 600_000, 20


def search(states: Sequence[State], match: Match, counted: JobCounts | None = None) -> Search:
    """Return the search for these jobs, as far as it is: begin it, or go on with the one that somebody has begun."""
    store, id = get_store(), id_of(states, match)
    entry = store.get_document(DOCUMENT).get(id)
    found = read(entry)
    fresh = is_young(entry, store.now(), DRIVEN)
    if found is None or (found.finished and not fresh):  # what was found earlier may have changed
        found = go_on(begin(states, match, counted), FIRST_STRETCH)
        if not found.finished:
            write(id, found)
    elif not found.finished and not fresh:
        found = go_on(found, STRETCH)
        write(id, found)
    return found


def tick(seconds: float = 0.25) -> bool:
    """Go on with the searches that have not ended.  Returns whether anything is left to do."""
    store, deadline = get_store(), monotonic() + seconds
    document = store.get_document(DOCUMENT)
    old = [id for id, entry in document.items() if not is_young(entry, store.now())]
    if old:
        store.update_document(DOCUMENT, dict.fromkeys(old))
    left, first = False, True
    for id, entry in document.items():
        found = read(entry) if id not in old else None
        if found is None or found.finished:
            continue
        if first or monotonic() < deadline:  # one step in any case, however slow the store is
            first = False
            found = go_on(found, seconds)
            write(id, found)
        left = left or not found.finished
    return left


def id_of(states: Sequence[State], match: Match) -> str:
    """Return the name of a search: the same search of two users who may see the same is one."""
    return sha256(dumps([list(states), match.stored()]).encode()).hexdigest()[:32]


def is_young(entry: Any, now: int, age: int = KEEP) -> bool:
    """Return whether the search was begun or continued in the last `age` ms."""
    at = entry.get("at") if isinstance(entry, dict) else None
    return is_moment(at) and now - at <= age


def write(id: str, found: Search) -> None:
    """Store how far a search is.  Does nothing if the store takes no changes: the page then shows what it has."""
    store = get_store()
    entry = {**asdict(replace(found, jobs=[])), "match": found.match.stored(), "at": store.now()}
    if not found.match.terms:  # older versions, which know no queries, can go on with it
        del entry["has_argument"], entry["unknown"]
    try:
        document = store.get_document(DOCUMENT)
        others = sorted(
            (each["at"], key) for key, each in document.items() if key != id and is_young(each, entry["at"])
        )
        surplus = [key for _, key in others[: max(0, len(others) + 1 - KEEP_NUMBER)]]
        store.update_document(DOCUMENT, {id: entry} | dict.fromkeys(surplus))
    except StoreError:
        return


def read(entry: Any) -> Search | None:
    """Read a search; None if there is none, or its entry is damaged."""
    try:
        fields = {key: value for key, value in entry.items() if key not in ("at", "jobs")}
        found = typed(Search, fields)
        found = replace(
            found,
            states=[State(state) for state in found.states],
            match=typed(Match, fields["match"]),
            parts=[(State(state), texts_in(some)) for state, some in found.parts],
            found=[(queue, id) for queue, id in map(texts_in, found.found)],
        )
        numbers = (found.total, found.seen, found.matches, found.index, found.unknown, *found.by_state.values())
        return found if all(map(is_count, numbers)) else None
    except BROKEN:
        return None
