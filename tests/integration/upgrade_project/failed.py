"""Let jobs die and move dead jobs, or print what a page of failed jobs shows: `python failed.py VERB [ID…]`.

`enqueue COUNT` prints the ids; `revive ID…`, `delete ID…`; `show` prints JSON: the ids of dead jobs by error
and by tag, as the groups list them, and how many jobs the groups count."""

from __future__ import annotations

import json
import sys

import django


def show() -> dict[str, list[object]]:
    """Return error, or tag → ids, number of jobs, as when maintenance has caught up with the other version."""
    from django_jobs.core.values import State
    from django_jobs.stores import get_store

    found: dict[str, list[object]] = {}
    store = get_store()
    while any(store.reconcile("default").values()) or store.is_walking("default"):
        continue
    for group in [*store.failure_groups(["default"], State.DEAD), *store.failure_tags(["default"], State.DEAD)]:
        if group.jobs:
            infos, _ = store.listed(["default"], State.DEAD, 1000, groups=[group])
            found[f"tag {group.tag}" if group.tag else group.signature] = [[info.id for info in infos], group.jobs]
    return found


if __name__ == "__main__":
    django.setup()
    from upgrade_project import jobs

    from django_jobs.stores import get_store

    verb, *rest = sys.argv[1:]
    if verb == "enqueue":
        print("\n".join(jobs.dies.using(tags=("all",)).enqueue(n).id for n in range(int(rest[0]))))
    elif verb == "show":
        print(json.dumps(show()))
    else:
        getattr(get_store(), verb)("default", rest)
