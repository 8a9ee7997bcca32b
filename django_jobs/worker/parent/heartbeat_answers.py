"""Acts on the store's answers to a heartbeat."""

from __future__ import annotations

from django_jobs.core.values import Killed, Lane, State
from django_jobs.stores.redis import Store
from django_jobs.worker.messages import Stop
from django_jobs.worker.parent.children import ChildProcesses


class HeartbeatAnswers:
    """Passes the store's answers about a child's jobs on to that child."""

    def __init__(self, store: Store, child_processes: ChildProcesses) -> None:
        self.store, self.child_processes = store, child_processes

    def asked_to_stop(self, worker: str, queue: str, job_id: str) -> None:
        """An operator has asked the job to stop, or has killed it."""
        for child in self.child_processes:
            if child.name != worker:
                continue
            if isinstance(job_id, Killed):
                child.end_attempt(queue, job_id, job_id.token)
            else:
                child.tell(Stop(queue, job_id))

    def holds_nothing(self, worker: str, queue: str, asked_at: float) -> None:
        """The worker was stopped, or cut off without noticing, for longer than a lease: find jobs whose claims were
        lost, and kill their processes.  Raises StoreError."""
        for child in self.child_processes:
            if child.name != worker:
                continue
            if child.lane is Lane.SHARED:
                child.check(queue)
            elif (job := child.running_job()) is not None and job.queue == queue and job.at < asked_at:
                # The parent asks the store itself, because such a job may block every thread of its process.
                info = self.store.get(queue, job.id)
                if info is None or info.state is not State.RUNNING or info.token != job.token:
                    child.has_lost([job.id])
