"""No process of a worker uses a socket of another: neither to Redis nor to the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.integration.databases import DatabaseSite, Server
from tests.support.backends.postgres import Postgres
from tests.support.processes import open_files
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.redis]


@pytest.fixture
def site(postgres: Postgres, redis_server: str, tmp_path: Path) -> Iterator[DatabaseSite]:
    """A parent that uses both: it archives."""
    named = {"default": postgres.settings(CONN_MAX_AGE=None, OPTIONS={"application_name": "forks"})}
    made = DatabaseSite(tmp_path, redis_server, named, NAMESPACE=f"f{uuid4().hex[:10]}", ARCHIVE={"DAYS": 1})
    made.migrate()
    yield made
    made.close()


def sockets(pid: int) -> set[str]:
    """The inodes of a process's sockets; none if it has ended."""
    return {name for name in open_files(pid) if name.startswith("socket:")}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_parent_and_children_share_no_socket(site: DatabaseSite, server: Server) -> None:
    pool = site.pool("--max-jobs", "5", processes=2, threads=2)
    first = site.succeed("pid_after_note", "default", "x")
    archived = "SELECT 1 FROM django_jobs_archivedjob WHERE name = 'pid_after_note'"
    wait_until(lambda: server.ask(archived), "the parent has used its database", seconds=15)
    # The next children are forked by a parent that has used it, beside siblings that use it.
    wait_until(
        lambda: site.succeed("pid_after_note", "default", "x") != first and first not in pool.children(),
        "a child was replaced",
        seconds=15,
    )

    def each_has_its_own() -> bool:
        child_processes = (pool.pid, *pool.children())
        counted = Counter(name for pid in child_processes for name in sockets(pid))
        return len(counted) >= (len(child_processes) - 1) * 2 and max(counted.values()) == 1

    # Between fork and its first lines, a child has what its parent has: its siblings' channels.
    wait_until(each_has_its_own, "no socket is shared")
