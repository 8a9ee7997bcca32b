"""A store that has something of every kind, and can be made so again."""

from __future__ import annotations

from typing import Any

import redis

from django_jobs import browse, schedules
from django_jobs.browse import Match
from django_jobs.browse.search import begin
from django_jobs.core.values import Controls, Job, NewJob, State
from django_jobs.models import Schedule
from django_jobs.operations import bulk, searching
from django_jobs.schedules.scheduler import Periodic
from django_jobs.schedules.state import form_of
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store
from tests.integration.console.workflows.flows import batch, order_waiting
from tests.support.console_data import Filler, worker_info, worker_numbers

QUEUES = ("default", "pull")
#: Jobs in each state.
EACH = 3


class Scene:
    """Everything that the store can hold, and the names of it."""

    def __init__(self, store: Store, clock: Any) -> None:
        self.store, self.clock = store, clock
        self.client: redis.Redis = store.transport.client
        self.ids: dict[str, list[str]] = {queue: [] for queue in QUEUES}
        self.states: dict[State, str] = {}
        self._jobs()
        self.flows = [batch(store, "a", "b"), order_waiting()]
        self._more_jobs()
        self._documents()
        self.sound = {key: self.client.dump(key) for key in self._keys()}

    def restore(self) -> None:
        """Make it sound again."""
        if gone := [key for key in self._keys() if key not in self.sound]:
            self.client.delete(*gone)
        pipeline = self.client.pipeline(transaction=False)
        for key, dumped in self.sound.items():
            pipeline.restore(key, 0, dumped, replace=True)
        pipeline.execute()

    def key(self, name: str, queue: str = "default") -> str:
        """The full name of a key of a queue, or of the fleet."""
        known = self.store.keys.of(queue)
        return known[name] if name in known else self.store.keys.fleet(name)

    def _keys(self) -> list[bytes]:
        return sorted(self.client.scan_iter(match=f"{{{self.store.keys.namespace}*", count=1000))

    def _jobs(self) -> None:
        store, filler = self.store, Filler(self.store)
        made = {"name": "tests.greet", "call": [["Ada"], {}], "tags": "red"}
        for state in (State.RUNNING, State.RETRY, State.DEAD, State.SUCCEEDED, State.CANCELLED, State.SCHEDULED):
            for _ in range(EACH):
                self.states[state] = filler.make(state, **made)
                self.ids["default"].append(self.states[state])
        self.clock.advance(300_000)
        store.sample(list(QUEUES))

    def _more_jobs(self) -> None:
        store, limited = self.store, {"limit_key": "one", "limit": 1}
        for controls in ({}, {"unique": "a" * 64}, limited, limited, {"alone": True}, {"keep_result": 9_000}):
            self.put("default", **controls)
        self.put("default", expires_at=self.clock() + 900_000)
        store.pause("default", name="shop.paused", reason="for a while", until=self.clock() + 9_000_000, by="ada")
        for number in range(EACH):
            self.put("pull", name="php.resize", args=b'[[{"width":%d}],{}]' % number)
        store.extend("default", ["web-1:4711/1"], 3_600_000)

    def put(self, queue: str, *, name: str = "tests.greet", args: bytes = b'[["Ada"],{}]', **controls: Any) -> str:
        """Enqueue one job."""
        id, given = f"own-{sum(map(len, self.ids.values()))}", Controls(**controls)
        record = encode(Job(id, queue, name, args, self.clock(), controls=given, meta={"request": "7"}))
        self.store.enqueue(queue, [NewJob(id, record, given, digest="d" * 16)])
        self.ids[queue].append(id)
        return id

    def _documents(self) -> None:
        store, now = self.store, self.clock()
        store.publish_worker("web-1:4711", worker_info(**worker_numbers(now, 3)), 3_600_000)
        store.publish_worker("odd:1", worker_info(), 3_600_000)
        store.command_worker("odd:1", "quiet")
        operation = bulk.start("revive", State.DEAD, Match(), user="ada")
        facts = {"at": [0, ""], "driver": ["me", now - 9], "by/me": [1, 1, 0, 0, 0], "doing/me": ["default", ["x"]]}
        facts |= {"named/me": [["default", "x"]], "followed": True}
        store.update_document("bulk", {f"{operation.id}/{fact}": value for fact, value in facts.items()})
        for name in ("nightly", "paused"):
            Schedule.objects.create(name=name, job="tests.greet", cron="0 3 * * *", args=["Ada"])
        nightly, paused = schedules.entries()
        Periodic().tick()
        facts = {f"fired:{nightly.id}": [now - 9_000, "default"], f"passed:{nightly.id}": now - 9_000}
        facts |= {f"paused:{paused.id}": now, f"since:{form_of(paused)}": now, f"gone:{form_of(nightly)}": now}
        store.update_document("schedules", facts)
        searching.write("0" * 32, begin([State.DEAD], Match(text="odd")))
        store.update_document(browse.ASKED, {"pull": now})
        store.update_document("releases", {"v1": now, "v2": now + 1})
        known = [each.signature for each in store.errors(["default"])[0]]
        store.update_document("errors", {each: ["resolved", "soon", "ada", now, "v1"] for each in known})
        browse.publish_snapshot()
