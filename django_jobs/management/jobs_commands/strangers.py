"""Workers of another project or stage that share the store and the namespace: they claim jobs that are not theirs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from django_jobs.conf import get_settings, settings_module
from django_jobs.core import registry
from django_jobs.core.values import WorkerInfo
from django_jobs.formatting import counted, plain
from django_jobs.serialization.checked import list_of

#: Workers, and names of jobs and queues, that one finding names.
NAMED = 5
REMEDY = (
    "Two projects or stages that share a store need different values of NAMESPACE. During a release, or if both are "
    "settings of one deployment, this is in order."
)


def strangers(workers: Sequence[WorkerInfo]) -> Iterator[str]:
    """Describe the workers whose settings module, jobs or queues differ from those of this process.

    Workers that differ in the same way are described once.  Older workers do not publish their settings and jobs: of
    these, only the queues are compared."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for worker in workers:
        if differences := tuple(_differences(worker.info if isinstance(worker.info, dict) else {})):
            alike.setdefault(differences, []).append(worker.name)
    for differences, names in alike.items():
        which = "Worker" if len(names) == 1 else "Workers"
        yield f"{which} {_some(names)}: {' '.join(differences)} {REMEDY}"


def _differences(info: dict[str, Any]) -> Iterator[str]:
    settings = info.get("settings")
    if isinstance(settings, str) and settings and settings_module() not in ("", settings):
        yield f"The settings module is {plain(settings, 100)!r}, and here it is {settings_module()!r}."
    theirs, ours = set(list_of(info.get("jobs"), str)), registry.names()
    if theirs and info.get("knows") != registry.digest():
        if more := sorted(theirs - set(ours)):
            yield f"{counted(len(more), 'job')} not known here: {_some(more)}."
        # A worker publishes only the first names: what is missing in a part may be in the rest.
        if info.get("job_count") == len(theirs) and (fewer := sorted(set(ours) - theirs)):
            yield f"{counted(len(fewer), 'job')} of this project not known there: {_some(fewer)}."
    here = get_settings().queues
    if queues := sorted(name for name in set(list_of(info.get("queues"), str)) if name not in here):
        yield f"{counted(len(queues), 'queue')} not in QUEUES here: {_some(queues)}."


def _some(names: Collection[str]) -> str:
    shown = [plain(name, 100) for name in list(names)[:NAMED]]
    return ", ".join([*shown, "…"] if len(names) > NAMED else shown)
