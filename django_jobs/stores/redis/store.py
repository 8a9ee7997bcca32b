"""All its parts together, and the kinds of server that it runs on."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from django_jobs.exceptions import StoreError, StoreUnavailable
from django_jobs.stores.redis.connection.addresses import cluster_from_setting, pool_from_setting, redacted
from django_jobs.stores.redis.connection.cluster import ClusterTransport
from django_jobs.stores.redis.connection.key_watch import KeyWatch
from django_jobs.stores.redis.connection.scripts import Argument, load, load_spanning
from django_jobs.stores.redis.connection.tracking import TrackingRefused
from django_jobs.stores.redis.connection.transport import Transport
from django_jobs.stores.redis.ends import Ends
from django_jobs.stores.redis.failures.remembered import RememberedErrors
from django_jobs.stores.redis.fetching import Fetching
from django_jobs.stores.redis.lists import Lists
from django_jobs.stores.redis.operating import Operating
from django_jobs.stores.redis.reconciling import Reconciling
from django_jobs.stores.redis.running import Running
from django_jobs.stores.redis.settling import Settling
from django_jobs.stores.redis.standing import Positions
from django_jobs.stores.redis.upkeep import Upkeep
from django_jobs.stores.redis.workflows import Workflows
from django_jobs.stores.values.answers import LONGEST_WAIT
from django_jobs.stores.values.options import StoreOptions

#: The scripts that each process that runs jobs needs: putting them together takes 30 ms.
OF_EVERY_CHILD = (("claim", False), ("claim", True), ("complete", False), ("complete", True), ("settle", False))


class Store(
    Running,
    Fetching,
    Settling,
    Reconciling,
    Upkeep,
    Operating,
    Workflows,
    Ends,
    Lists,
    RememberedErrors,
    Positions,
):
    """Jobs on one Redis or Valkey server (≥ 6.2), on Sentinel, or on a Cluster.

    It is safe to use from many threads, and after a fork.

    Rules for all methods that change something, checked by tests/contract:

    * each is one atomic transition;
    * times are integer milliseconds of the *server's* clock; durations are integer milliseconds;
    * a call that ends or extends an attempt presents the claim's token; when the claim is no longer held (it is
      "stale"), the call changes nothing and its answer says so;
    * a call may be sent twice (the client repeats it when the reply was lost): the second call has no effect and gives
      the same answer;
    * no job is dropped because it cannot be read;
    * one call touches one queue only, except the calls that take `queues`.

    Errors: StoreUnavailable, StoreFull (from calls that need room, above all enqueue), StoreCorrupt,
    StoreMisconfigured.
    """

    @classmethod
    def from_setting(cls, setting: str, *, options: StoreOptions | None = None) -> Store:
        """Make a store for the STORE setting: a URL, or "cache:ALIAS".  It connects at the first call."""
        options = options or StoreOptions()
        if setting.startswith(("redis+cluster://", "rediss+cluster://")):
            return ClusterStore(ClusterTransport(cluster_from_setting(setting), redacted(setting)), options)
        return cls(Transport(pool_from_setting(setting), redacted(setting)), options)

    def prepare(self) -> None:
        """Do once what each copy of this process would do at its first calls.  Sends nothing."""
        for name, short in OF_EVERY_CHILD:
            load(name, short=short)


class ClusterStore(Store):
    """A store whose queues are on several nodes: a command over several queues is split."""

    #: Seconds.  Where a server does not track keys for us: wait on one queue, then look into all.
    LONGEST_BLOCK = 0.25
    #: Seconds until a server that refused something is asked for it again: to track keys; to read several queues.
    REFUSED, REFUSED_READ = 60.0, 5.0

    #: its calls for several queues are made one after the other.
    renewed_at_once = 1

    transport: ClusterTransport

    def server_of(self, queue: str) -> str:
        return self.transport.server_of(self.keys.of(queue)["answers"])

    def __init__(self, transport: ClusterTransport, options: StoreOptions) -> None:
        super().__init__(transport, options)
        self._watches: list[KeyWatch] = []
        self._watches_of = os.getpid()
        self._blocks_until = 0.0
        self._reads_alone: dict[str, float] = {}

    def _wait(self, keys: dict[bytes, str], timeout: float) -> str | None:
        queues = list(dict.fromkeys(keys.values()))
        # A blocking command ends some time after its timeout (waits.py); here, only the client's own wait is exact.
        if (len(queues) > 1 or timeout < LONGEST_WAIT) and monotonic() >= self._blocks_until:
            try:
                return self._wait_for_change(keys, timeout)
            except TrackingRefused:
                self._blocks_until = monotonic() + self.REFUSED
        if len(queues) == 1:
            return super()._wait(keys, timeout)
        chosen = random.choice(queues)
        one = {key: queue for key, queue in keys.items() if queue == chosen}
        return super()._wait(one, min(timeout, self.LONGEST_BLOCK))

    def _wait_for_change(self, keys: dict[bytes, str], timeout: float) -> str | None:
        """Wait on all nodes.  Raises TrackingRefused."""
        self.transport.connect()
        if self._watches_of != os.getpid():
            self._watches, self._watches_of = [], os.getpid()
        try:
            watch = self._watches.pop()
        except IndexError:
            watch = KeyWatch(self.transport)
        by_name = {key.decode(): queue for key, queue in keys.items()}
        try:
            key = watch.wait(by_name, timeout, lambda key: self.transport.command("LPOP", key) is not None)
        except BaseException as error:
            if isinstance(error, StoreError):
                self._watches.append(watch)
            else:
                watch.close()
            raise
        self._watches.append(watch)
        return None if key is None else by_name[key]

    def _by_server(self, queues: Sequence[str]) -> Mapping[str, Sequence[str]]:
        self.transport.connect()
        found: dict[str, list[str]] = {}
        for queue in queues:
            found.setdefault(self.server_of(queue), []).append(queue)
        return found

    def _read_on_one(self, name: str, queues: Sequence[str], args: Sequence[Argument]) -> Sequence[Any]:
        """One call for all queues of the node.  Where it is refused (the queues are on their way to another node, or a
        proxy wants all keys of a script named): one call for each queue, which also learns where the queue is."""
        server = self.server_of(queues[0])
        if len(queues) > 1 and server and monotonic() >= self._reads_alone.get(server, 0.0):
            script, keys = load_spanning(name), [self._script(name, queue)[1] for queue in queues]
            given = self._clock(), *args
            flat = [key for some in keys for key in some]
            try:
                answers: Sequence[Any] = self.transport.run_on(
                    server, script, (*given, *flat, len(given), len(keys[0]))
                )
                return answers
            except StoreUnavailable:
                raise
            except StoreError:
                self._reads_alone[server] = monotonic() + self.REFUSED_READ
        found: list[Any] = []
        for queue in queues:
            found += super()._read_on_one(name, [queue], args)
        return found

    def close(self) -> None:
        if self._watches_of == os.getpid():
            while self._watches:
                self._watches.pop().close()
        super().close()

    def abandon(self) -> None:
        for watch in self._watches:
            watch.abandon()
        self._watches = []
        super().abandon()


__all__ = ["ClusterStore", "Store"]
