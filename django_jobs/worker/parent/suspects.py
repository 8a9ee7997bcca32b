"""Which child of this parent may run suspects: jobs held by a worker that died as a whole, parent and children.

Only one child at a time may run them, so that only one suspect runs on this worker at a time.  If this worker dies too,
only the suspect that was running is charged a second time, and not the others.
"""

from __future__ import annotations

from django_jobs.core.values import Lane
from django_jobs.worker.parent.children import ChildHandle, ChildProcesses

#: Seconds for which the child may run a job that is not a suspect before another child gets the right.
BUSY = 0.1


class Suspects:
    """The right to run suspects.  One child has it; another gets it only after that child has confirmed that it runs
    none."""

    def __init__(self, child_processes: ChildProcesses) -> None:
        self.child_processes = child_processes
        self._holder: ChildHandle | None = None
        self._wanted_back = False

    def step(self, now: float) -> None:
        """Give the right to a child, or ask for it back if the child cannot use it."""
        holder = self._holder
        if holder is not None and (holder.pid not in self.child_processes.children or holder.has_yielded):
            # A child that was reaped runs no suspect any more.
            self._holder = None
            self._give(but_not=holder)
        elif holder is None:
            self._give()
        elif not self._wanted_back and self._is_of_no_use(holder, now) and self._others(holder):
            self._wanted_back = True
            holder.tell("yield")

    def _is_of_no_use(self, holder: ChildHandle, now: float) -> bool:
        job = holder.job
        return holder.retiring or (job is not None and not job.suspect and now - job.at > BUSY)

    def _others(self, holder: ChildHandle | None) -> list[ChildHandle]:
        return [child for child in self.child_processes.of(Lane.ALONE) if child is not holder and not child.killed_for]

    def _give(self, but_not: ChildHandle | None = None) -> None:
        others = self._others(but_not)
        if others:
            # An idle child, or the one whose job started last: most jobs are short.
            self._holder = child = max(others, key=lambda child: child.job.at if child.job else float("inf"))
            self._wanted_back = child.has_yielded = False
            child.tell("try")
