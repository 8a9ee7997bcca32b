"""A lost worker whose jobs people move while they are being taken back."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobs.stores.redis import Store

pytestmark = pytest.mark.redis


@pytest.mark.parametrize("verb", ["recover", "release_worker"])
def test_jobs_that_were_moved_meanwhile_do_not_look_like_the_end_of_the_list(
    redis_store: Store, make_job: Any, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Who gives a dead child's jobs back stops at the first answer shorter than the limit."""
    store = redis_store
    store.enqueue("default", [make_job(f"j{n}") for n in range(5)])
    assert len(store.claim("default", "w", 5, lease=30_000).claims) == 5
    look = store._held_by
    looks: list[int] = []

    def killed_in_between(queue: str, holders: set[str], limit: int) -> tuple[list[str], bool]:
        found = look(queue, holders, limit)
        if not looks:
            store.kill("default", found[0][:1], "by hand")
        looks.append(limit)
        return found

    monkeypatch.setattr(store, "_held_by", killed_in_between)
    if verb == "recover":
        moved = store.recover("default", worker="w", limit=3)
    else:
        moved = store.release_worker("default", "w", limit=3)
    assert len(moved) == 3
    assert looks == [3, 1]
    assert store.stats(["default"])[0].counts["running"] == 1
