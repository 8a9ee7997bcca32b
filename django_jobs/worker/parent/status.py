"""The status that a worker publishes."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from secrets import token_hex
from time import time
from typing import Any

from django_jobs import __version__
from django_jobs.conf import settings_module
from django_jobs.conf.release import release
from django_jobs.core.registry import digest, names
from django_jobs.formatting import counted
from django_jobs.samples.worker import ENDS, WorkerSamples
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.parent.children import ChildProcesses
from django_jobs.worker.tally import Totals

#: Names of closed queues, and of jobs, in a description, which every worker sends with every heartbeat.
MOST_NAMED = 100


class WorkerStatus:
    """Makes the JSON object for `publish_worker`: host, pid, queues, state, what each child does, what ended.

    `describe` also pings the children, whose answers are in the next description: the parent waits for no child.
    """

    def __init__(
        self, config: WorkerConfig, name: str, child_processes: ChildProcesses, totals: Totals | None = None
    ) -> None:
        self.config, self.name, self.child_processes = config, name, child_processes
        self.state = "running"
        #: returns what is wrong with this worker (see health.py).
        self.problems: Callable[[], list[str]] = list
        self.release = release()  # before the first child is forked: all processes of a worker run the same code
        self.started_at, self.incarnation = int(time() * 1000), token_hex(6)
        self.totals, self.samples = totals or Totals(), WorkerSamples(self.started_at)
        self._is_new = False

    @property
    def is_new(self) -> bool:
        """True once after each `describe`, so that memory is checked once per heartbeat."""
        new, self._is_new = self._is_new, False
        return new

    def summary(self) -> str:
        config = self.config
        size = f"{counted(config.processes, 'process', 'processes')} × {counted(config.threads, 'thread')}"
        return f"{size}, queues {', '.join(config.served.written)}"

    def describe(self) -> dict[str, Any]:
        self._is_new = True
        children = []
        for child in self.child_processes:
            children.append(
                {
                    "name": child.name,
                    "pid": child.pid,
                    "lane": child.lane.value,
                    "memory": memory_of(child.pid),
                    "claimed": child.status.claimed,
                    "jobs": child.status.jobs,
                }
            )
        self.child_processes.ping()
        now, ended = int(time() * 1000), self.totals.read(child.shared.tally for child in self.child_processes)
        self.samples.take((ended[0], ended[1], ended[2]), now)
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "state": self.state,
            "started_at": self.started_at,
            "incarnation": self.incarnation,
            "queues": list(self.config.queue_names),
            "patterns": self.config.served.open_patterns,
            "excluded": self.config.served.excluded,
            "closed": len(self.child_processes.closed),
            "closed_queues": sorted(self.child_processes.closed)[:MOST_NAMED],
            "version": __version__,
            "release": self.release,
            "knows": digest(),
            "settings": settings_module(),
            "jobs": names()[:MOST_NAMED],
            "job_count": len(names()),
            "processes": self.config.processes,
            "threads": self.config.threads,
            "children": children,
            "at": now,
            "totals": dict(zip(ENDS, ended, strict=True)),
            "samples": self.samples.as_json(),
            "problems": self.problems(),
        }


def memory_of(pid: int) -> int:
    """Return the resident memory of a process in bytes; 0 where /proc does not tell."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
