"""The part of the store contract for the reports and commands of `runworkers` parents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from django_jobs.core.values import WorkerInfo


class FleetStore(ABC):
    """The reports of `runworkers` parents, and the commands to them."""

    @abstractmethod
    def publish_worker(self, name: str, info: Mapping[str, Any], ttl: int) -> list[str]:
        """Record that this `runworkers` parent process is alive (for `ttl` ms) and what it does.  Returns the commands
        that were sent to it since the last call ("stop", "quiet"), each once."""

    @abstractmethod
    def forget_worker(self, name: str) -> None:
        """Remove the entry of a parent process that has ended."""

    @abstractmethod
    def command_worker(self, name: str, command: str) -> bool:
        """Send "stop" or "quiet" to a parent process, to be read at its next heartbeat.  False if there is no such
        worker."""

    @abstractmethod
    def workers(self) -> list[WorkerInfo]:
        """Return the `runworkers` parent processes that are alive."""
