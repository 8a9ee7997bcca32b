"""The settings and options of one `runworkers`, the same for all its processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django_jobs.conf import QueueSettings
from django_jobs.core.values import Lane
from django_jobs.worker.served_queues import ServedQueues


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Durations are in seconds, except `lease`."""

    queues: Sequence[QueueSettings]
    #: the same, as all parts of the worker ask for them.
    served: ServedQueues = field(init=False)
    #: "" = host and process id.
    name: str = ""
    processes: int = 1
    threads: int = 8
    async_concurrency: int = 100
    drain_timeout: float = 25.0
    #: jobs after which a child is replaced; 0 = never.
    max_jobs: int = 0
    #: MiB of resident memory above which a child is replaced; 0 = never.
    max_memory: int = 0
    burst: bool = False
    reload: bool = False
    periodic: bool = True
    strict: bool = False
    #: with --drain: queue → the number of the last job that waited when this worker started; None = without --drain.
    drain: Mapping[str, int] | None = None
    #: touched while the worker is well; "" = none.
    health_file: str = ""
    #: host and port for probes; None = none.
    http: tuple[str, int] | None = None
    #: length of a lease in ms.
    lease: int = 30_000

    def __post_init__(self) -> None:
        served = self.queues if isinstance(self.queues, ServedQueues) else ServedQueues(self.queues)
        object.__setattr__(self, "served", served)

    @property
    def queue_names(self) -> Sequence[str]:
        """The names of the queues: a list that may grow."""
        return self.served.names

    @property
    def ends_itself(self) -> bool:
        """The worker ends when all jobs, or those that waited at its start, are done."""
        return self.burst or self.drain is not None

    def threads_of(self, lane: Lane) -> int:
        """Return how many threads of one child run jobs."""
        return 1 if lane is Lane.ALONE else self.threads

    @property
    def most_alone(self) -> int:
        """The highest number of alone children: each runs one job at a time."""
        return min(self.processes * self.threads, 32)
