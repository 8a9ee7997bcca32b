"""What ran where it was enqueued (EAGER): callers find it by its id, as they find other jobs in the project's store."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakValueDictionary

from django_jobs.core.values import JobInfo
from django_jobs.stores import get_store

if TYPE_CHECKING:
    from django_jobs.stores.redis import Store

#: How many are known, the newest: jobs that ran alone, and temporary stores of workflows and batches.  A store is also
#: known as long as a handle has it.
_MOST_JOBS, _MOST_STORES = 10_000, 100


class RanHere:
    """What ran while one store of the project was in use.  In a test run, each test has another."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, JobInfo] = OrderedDict()
        self._stores: WeakValueDictionary[str, Store] = WeakValueDictionary()
        self._kept: deque[Store] = deque(maxlen=_MOST_STORES)

    def begin(self, id: str, store: Store) -> None:
        """The job is in this temporary store."""
        self._stores[id] = store

    def keep(self, id: str, store: Store) -> None:
        """The workflow or batch is in this temporary store, which stays for a while."""
        self._stores[id] = store
        self._kept.append(store)

    def end(self, info: JobInfo) -> None:
        """The temporary store of this job is closed: this is the last that can be known of the job."""
        self._jobs[info.id] = info
        while len(self._jobs) > _MOST_JOBS:
            self._jobs.popitem(last=False)

    def store_of(self, id: str) -> Store | None:
        """Return the temporary store that has this job, workflow or batch; None if it is not known here."""
        return None if id in self._jobs else self._stores.get(id)

    def is_over(self, id: str) -> bool:
        """Return whether nothing can happen to this job any more."""
        return id in self._jobs

    def find(self, id: str) -> JobInfo | None:
        """Return what is known of a job here."""
        store = self.store_of(id)
        return self._jobs.get(id) if store is None else store.find(store.queues(), id)


_beside: WeakKeyDictionary[Store, RanHere] = WeakKeyDictionary()


def ran_here() -> RanHere:
    """Return what ran here while the present store was in use."""
    store = get_store()
    return _beside.get(store) or _beside.setdefault(store, RanHere())
