"""How a free worker waits for jobs, and looks where there are some."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django_jobs.core.values import Lane
from django_jobs.serialization.checked import read_number
from django_jobs.stores.redis.connection.part import LOOKED_INTO_AT_ONCE, Part
from django_jobs.stores.values.answers import LONGEST_WAIT, Outlook


class Fetching(Part):
    """How free workers find the queues to claim from."""

    def promote(self, queue: str, limit: int = 100) -> int:
        """scheduled and retry → queued, for jobs that are due, earliest first.  Returns how many moved."""
        return int(self._run("promote", queue, min(limit, 100)))

    def last_arrival(self, queue: str) -> int:
        """Promote all jobs that are due, then return the number of the job that became queued last."""
        while self.promote(queue):
            pass
        return read_number(self.transport.command("GET", self.keys.of(queue)["seq"]) or b"0")

    def waiting(self, queue: str, up_to: int) -> int:
        """Count the queued jobs, in both lanes, that `claim` would take with this `up_to`; 0 while the queue is
        paused.  It may stop counting at a thousand."""
        return int(self._run("waiting", queue, up_to))

    def wait_for_work(
        self,
        queues: Sequence[str],
        timeout: float,
        *,
        lane: Lane | None = Lane.SHARED,
        passed_over: Collection[str] = (),
    ) -> str | None:
        """Block up to `timeout` seconds until there may be a job to claim in this lane; None: in any lane.

        Parked jobs in the queues `passed_over` do not end the wait: this worker has just looked at them.

        Returns the queue to look into, "" if that is not known (look into all), None when the time is over.

        Workers must not rely on it: they check their queues at least every LONGEST_WAIT in any case."""
        timeout = max(0.01, min(timeout, LONGEST_WAIT))
        keys: dict[bytes, str] = {}
        for end in ("", "_alone") if lane is None else ("",) if lane is Lane.SHARED else ("_alone",):
            keys |= {self.keys.of(queue)[f"wake{end}"].encode(): queue for queue in queues}
            keys |= {self.keys.of(queue)[f"offer{end}"].encode(): queue for queue in queues if queue not in passed_over}
        return self._wait(keys, timeout)

    def _wait(self, keys: dict[bytes, str], timeout: float) -> str | None:
        told = self.transport.blocking(timeout, "BLPOP", *keys, timeout, exact=timeout < LONGEST_WAIT)
        return None if told is None else keys[told[0]]

    def backlog(self, queues: Sequence[str], *, lane: Lane = Lane.SHARED) -> dict[str, int]:
        """Count the jobs that wait in that lane, per queue, in one round trip."""
        name = "queued" if lane is Lane.SHARED else "alone"
        size = ("ZCOUNT", "0", "+inf") if lane is Lane.CLEAR else ("ZCARD",)
        sizes = self.transport.pipeline([(size[0], self.keys.of(queue)[name], *size[1:]) for queue in queues])
        return dict(zip(queues, sizes, strict=True))

    def outlook(self, queues: Sequence[str], *, lane: Lane = Lane.SHARED) -> dict[str, Outlook]:
        """Tell where a claim may find jobs, now or later (wait_for_work is built on this).  One round trip."""
        found = self._read_over("outlook", queues, lane.value, at_once=LOOKED_INTO_AT_ONCE, width=2)
        return {queue: Outlook(int(left), None if due < 0 else int(due)) for queue, (left, due) in found.items()}

    def wake(self, queues: Sequence[str], *, lane: Lane = Lane.SHARED) -> None:
        """Wake another waiting worker for these queues: the caller was woken for them and will not look."""
        self._run_over("wake", queues, lane.value, at_once=LOOKED_INTO_AT_ONCE)
