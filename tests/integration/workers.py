"""Real workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from django_jobs.conf import Settings
from django_jobs.core.values import Controls, Job, JobInfo, NewJob, Options, State
from django_jobs.serialization.record import encode
from django_jobs.stores import maker_of
from django_jobs.stores.redis import Store
from django_jobs.stores.values.options import StoreOptions
from tests.support.pools import Pool, Site
from tests.support.waiting import wait_until

#: Of the keyword arguments of `put`: the others are of Options.
CONTROLS = ("at_most_once", "priority", "expires_at", "limit_key", "limit")


class WorkerSite(Site):
    """A store with workers on it; jobs are put there directly, as a web process would."""

    def __init__(self, folder: Path, store: str, **jobs_settings: Any) -> None:
        super().__init__(folder, store, **jobs_settings)
        self.options = StoreOptions(namespace=jobs_settings.get("NAMESPACE", "jobs"))
        self._any: Store | None = None

    @property
    def store(self) -> Store:  # type: ignore[override]
        if self._any is None:
            maker = maker_of(Settings(store=self.store_setting, base_dir=str(self.folder)))
            assert maker is not None
            self._any = maker(self.options)
        return self._any

    def direct_any(self, url: str) -> None:
        """Let the test itself look past the proxy."""
        self._any = Store.from_setting(url, options=self.options)

    def environment(self, **extra: str) -> dict[str, str]:
        return {
            **super().environment(**extra),
            "DJANGO_SETTINGS_MODULE": "tests.integration.worker_project.settings",
            "SURVIVAL_DB": str(self.folder / "db.sqlite3"),
        }

    def put(self, name: str, *args: Any, id: str = "", run_in: int = 0, queue: str = "default", **options: Any) -> str:
        """Enqueue one job; keyword arguments are of Options (times in ms) and Controls."""
        controls = Controls(
            alone="timeout" in options,
            **{key: options.pop(key) for key in CONTROLS if key in options},
        )
        now = self.store.now()
        job = Job(
            id or uuid4().hex,
            queue,
            name,
            json.dumps([args, {}]).encode(),
            now,
            Options(**options),
            controls,
        )
        self.store.enqueue(queue, [NewJob(job.id, encode(job), controls, run_at=now + run_in if run_in else 0)])
        return job.id

    def info(self, id: str, queue: str = "default") -> JobInfo:
        found = self.store.get(queue, id)
        assert found is not None, id
        return found

    def wait(self, id: str, *states: State, seconds: float = 10.0, queue: str = "default") -> JobInfo:
        """Until the job is in one of these states (default: succeeded)."""
        wanted = states or (State.SUCCEEDED,)
        wait_until(lambda: self.info(id, queue).state in wanted, f"{id} is {wanted}", seconds=seconds)
        return self.info(id, queue)

    def close(self) -> None:
        super().close()
        if self._any is not None:
            self._any.close()


@pytest.fixture
def site(redis_server: str, tmp_path: Path) -> Iterator[WorkerSite]:
    """Workers with a lease of 2 s and a drain of 3 s."""
    made = WorkerSite(tmp_path, redis_server, NAMESPACE=f"w{uuid4().hex[:10]}")
    yield made
    made.close()


def maintenance_of(site: WorkerSite, pool: Pool) -> int:
    """Its child that runs no jobs, once it has one for the jobs of each lane."""

    def found() -> int:
        (about,) = [worker.info for worker in site.store.workers() if worker.info["pid"] == pool.pid] or [{}]
        workers = {child["pid"] for child in about.get("children", ())}
        others = set(pool.children()) - workers
        return others.pop() if len(workers) == 2 and len(others) == 1 else 0

    return wait_until(found, "the maintenance process is known", seconds=8)
