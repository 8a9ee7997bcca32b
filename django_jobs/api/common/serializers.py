"""A job as a caller may see it: the fields of serialization/payloads.py, and `data` as it was sent.

A caller with only the scope `enqueue` sees no arguments, results or errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django_jobs import archive, browse
from django_jobs.api.common.principal import Principal, Scope
from django_jobs.api.common.problems import Kind, Problem
from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.values import JobInfo
from django_jobs.outbox import in_outbox
from django_jobs.remote import known
from django_jobs.remote.data import plain
from django_jobs.serialization.payloads import job_payload
from django_jobs.serialization.record import name_of
from django_jobs.stores import get_store
from django_jobs.stores.ran_here import ran_here

#: Arguments, results and what may quote them, such as error texts.
PRIVATE = ("args", "kwargs", "data", "meta", "result", "result_missing", "error", "log", "checkin", "raw", "corrupt")


def shown(info: JobInfo, principal: Principal, *, archived: bool = False) -> dict[str, Any]:
    reads = principal.may(Scope.READ)
    payload = job_payload(info, show_arguments=reads)
    payload["archived"] = archived
    if not reads:
        return {key: value for key, value in payload.items() if key not in PRIVATE}
    args, kwargs = payload.get("args"), payload.get("kwargs")
    if "result" in payload:
        payload["result"] = plain(payload["result"])
    remote = name_of(info.record) in known()
    payload["data"] = data_of(args, kwargs, remote=remote) if args is not None and kwargs is not None else None
    return payload


def listed(info: JobInfo, principal: Principal) -> dict[str, Any]:
    """Return the same for a list: the store returns only the beginning of a result, and the last attempt."""
    return {key: value for key, value in shown(info, principal).items() if key not in ("result", "log")}


def stored(queue: str | None, ids: Sequence[str]) -> dict[str, JobInfo]:
    """Return by their ids the jobs that ran where they were enqueued (EAGER), are in this queue, or have left it for
    another one: each with all that is known of it."""
    here = {id: info for id in ids if (info := ran_here().find(id)) is not None}
    wanted = [id for id in ids if id not in here]
    if queue is None or not wanted:
        return here
    return here | {info.id: info for info in get_store().get_many(queue, wanted, moved=True, whole=True)}


def find(id: str, *, name: str | None = None, queue: str | None = None) -> tuple[JobInfo, bool]:
    """Return the job, waiting, running or finished, and whether it comes from the archive.  Raises Problem 404."""
    found = look(id, name=name, queue=queue)
    if found is None:
        of_type = {} if name is None else {"name__in": registry.names_of(name)}
        waits = in_outbox(id, **of_type) or " It may have left the history."
        raise Problem(Kind.NO_JOB, f"There is no job {id!r}{f' of type {name!r}' if name else ''}.{waits}")
    return found


def look(
    id: str, *, name: str | None = None, queue: str | None = None, knows: Callable[[str], bool] | None = None
) -> tuple[JobInfo, bool] | None:
    """Return the same, or None.  Jobs of an earlier release may share an id, in several queues: only one of that name,
    and of a type that the caller `knows`, is returned."""
    store, settings = get_store(), get_settings()
    name = None if name is None else registry.current_name(name)

    def is_meant(info: JobInfo | None) -> bool:
        if info is None:
            return False
        named = name_of(info.record)
        return name in (None, named) and (knows is None or knows(named))

    if queue is None and name is not None:
        queue = queue_of(name)
    info = stored(queue, [id]).get(id)
    if not is_meant(info):
        # Its type may have been moved to another queue since, and its queue may have left the settings.
        queues = browse.queue_names()
        info = store.find(queues, id)
        if info is not None and not is_meant(info):
            others = (store.get(each, id) for each in queues if each != info.queue)
            info = next(filter(is_meant, others), None)
    if info is not None and is_meant(info):
        return info, False
    if settings.archive is None:
        return None
    archived = next(filter(is_meant, archive.found(id)), None)
    return None if archived is None else (archived, True)


def queue_of(name: str) -> str | None:
    """Return the queue to which jobs of that name are sent now, if it is known."""
    kind = known().get(name)
    if kind is not None:
        return kind.queue
    return registry.get(name).queue if name in registry.names() else None


def call_of(data: Any, *, remote: bool) -> tuple[list[Any], dict[str, Any]]:
    if remote:
        return [data], {}
    if isinstance(data, dict):
        return [], data
    if isinstance(data, list):
        return data, {}
    return ([] if data is None else [data]), {}


def data_of(args: list[Any], kwargs: dict[str, Any], *, remote: bool) -> Any:
    """Return `data` for stored arguments, as far as one JSON value can represent them: the reverse of `call_of`."""
    if args and kwargs:
        return {"args": plain(args), "kwargs": plain(kwargs)}
    if remote and len(args) == 1:
        return plain(args[0])
    return plain(kwargs) if kwargs else plain(args) if args else None
