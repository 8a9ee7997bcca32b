"""A random walk through every verb of a store: reaches the states that nobody thinks of, the same way for each seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from django_jobs.core.values import PLAIN, Attempt, Claim, Controls, Done, Job, Lane, NewJob, State
from django_jobs.exceptions import CorruptRecord
from django_jobs.serialization.record import decode, encode
from django_jobs.stores.redis import RedisStore

QUEUE = "walk"
LEASE = 1_000
#: of what two kinds of worker know; "" takes anything.
DIGESTS = ("", "old", "new")
WORKERS = ("alpha", "beta")
FAILED = Attempt(1, "failed", 0, error_type="builtins.ValueError", error="no")

SHAPES = (
    PLAIN,
    PLAIN,
    Controls(priority=7),
    Controls(unique="a" * 64),
    Controls(unique="a" * 64, unique_mode="running"),
    Controls(unique="b" * 64, unique_mode="success", limit_key="one", limit=1),
    Controls(unique="c" * 64, unique_mode="period", unique_for=3_000),
    Controls(limit_key="one", limit=1),
    Controls(limit_key="one", limit=1, expires_at=0),
    Controls(limit_key="two", limit=2, alone=True),
    Controls(alone=True, at_most_once=True),
    Controls(keep_result=2_000),
)


class Walk:
    """Keeps what workers would know: the claims they hold, and those they held."""

    def __init__(self, store: RedisStore, clock: object, seed: int, *, damaged: bool = False) -> None:
        """`damaged`: somebody else writes into the store, so its numbers need not agree."""
        self.store, self.clock, self.rng, self.damaged = store, clock, random.Random(seed), damaged
        self.held: list[Claim] = []
        self.past: list[Claim] = []
        self.records: dict[str, bytes] = {}
        self.sent: set[bytes] = set()
        self.made = 0
        self.log: list[str] = []

    def steps(self) -> tuple[Callable[[], object], ...]:
        """The verbs, as often as they shall come up."""
        return (
            *(self.enqueue, self.claim, self.complete) * 4,
            *(self.retry, self.wait, self.extend) * 2,
            *(self.snooze, self.park, self.bury, self.discard, self.release, self.begin, self.checkin, self.transfer),
            *(self.recover, self.release_worker, self.promote, self.prune, self.reconcile),
            *(self.cancel, self.revive, self.delete, self.kill, self.reschedule, self.pause, self.resume),
            *(self.restore, self.fleet, self.edit, self.drain, self.list_all, self.look, self.watch),
        )

    def step(self) -> None:
        """One random verb with random arguments."""
        verb = self.rng.choice(self.steps())
        self.log.append(verb.__name__)
        verb()

    # -- what comes in ---------------------------------------------------------

    def new_job(self) -> NewJob:
        """A job of a random shape."""
        self.made += 1
        now, shape = self.clock(), self.rng.choice(SHAPES)
        if shape.expires_at is not None:
            shape = Controls(limit_key="one", limit=1, expires_at=now + self.rng.choice((500, 5_000)))
        id, name = f"job-{self.made}", self.rng.choice(("shop.one", "shop.two"))
        record = encode(Job(id, QUEUE, name, b'[[9007199254740993,[],"\\u0000"],{}]', now, controls=shape))
        run_at = self.rng.choice((0, 0, 0, now + 700))
        policy = self.rng.choice(("skip", "replace", "debounce"))
        schedule_run = ("nightly", now) if self.rng.random() < 0.05 else None
        self.records[id] = record
        self.sent.add(record)
        return NewJob(id, record, shape, run_at, policy, schedule_run)

    def enqueue(self) -> object:
        jobs = [self.new_job() for _ in range(self.rng.choice((1, 1, 3)))]
        return self.store.enqueue(QUEUE, jobs, max_length=self.rng.choice((0, 0, 12)))

    def claim(self) -> object:
        claimed = self.store.claim(
            QUEUE,
            self.rng.choice(WORKERS),
            self.rng.choice((1, 3)),
            lane=self.rng.choice((Lane.SHARED, Lane.ALONE)),
            lease=LEASE,
            max_running=self.rng.choice((0, 0, 6)),
            lease_each=self.rng.random() < 0.1,
            knows=self.rng.choice(DIGESTS),
        )
        self.held += claimed.claims
        return claimed

    # -- how attempts end -------------------------------------------------------

    def _take(self) -> Claim | None:
        if not self.held:
            return None
        claim = self.held.pop(self.rng.randrange(len(self.held)))
        self.past.append(claim)
        return claim

    def complete(self) -> object:
        done = [claim for _ in range(self.rng.choice((1, 2))) if (claim := self._take())]
        shapes = {claim.id: self.store_controls(claim) for claim in done}
        return self.store.complete(QUEUE, [Done(c, b"[1]", 3, controls=shapes[c.id]) for c in done])

    def store_controls(self, claim: Claim) -> Controls:
        """The controls a worker reads from the claim's record; one that cannot be read it would bury."""
        try:
            return decode(claim.id, QUEUE, claim.record).controls
        except CorruptRecord:
            return PLAIN

    def retry(self) -> object:
        return (claim := self._take()) and self.store.retry(claim, FAILED, 400)

    def snooze(self) -> object:
        return (claim := self._take()) and self.store.snooze(claim, 300)

    def look(self) -> object:
        return self.store.parked(QUEUE)

    def park(self) -> object:
        return (claim := self._take()) and self.store.park(claim, self.rng.choice(DIGESTS))

    def bury(self) -> object:
        return (claim := self._take()) and self.store.bury(claim, FAILED)

    def discard(self) -> object:
        return (claim := self._take()) and self.store.discard(claim, FAILED)

    def release(self) -> object:
        return (claim := self._take()) and self.store.release(QUEUE, [claim])

    def begin(self) -> object:
        return self.held and self.store.begin(self.rng.choice(self.held))

    def checkin(self) -> object:
        return self.held and self.store.checkin(self.rng.choice(self.held), b'{"message":"half"}')

    def transfer(self) -> object:
        if self.held:
            claim = self.rng.choice(self.held)
            return self.store.transfer(claim, f"remote:{claim.id}", LEASE)
        return None

    def extend(self) -> object:
        return self.store.extend(QUEUE, WORKERS, LEASE)

    def recover(self) -> object:
        return self.store.recover(QUEUE, worker=self.rng.choice((None, None, *WORKERS)))

    def release_worker(self) -> object:
        return self.store.release_worker(QUEUE, self.rng.choice(WORKERS))

    # -- upkeep ------------------------------------------------------------------

    def promote(self) -> object:
        return self.store.promote(QUEUE)

    def prune(self) -> object:
        return self.store.prune(QUEUE)

    def reconcile(self) -> object:
        """And what a second worker does with a key that it saw broken: by now it is sound."""
        self.store._set_aside([self.store.keys.of(QUEUE)["wake"]])
        return self.store.reconcile(QUEUE)

    def wait(self) -> object:
        self.clock.now += self.rng.choice((1, 50, 400, 1_500))
        return None

    # -- people --------------------------------------------------------------------

    def _some(self) -> list[str]:
        ids = [f"job-{self.rng.randint(max(1, self.made - 15), self.made + 1)}" for _ in range(2)]
        return list(dict.fromkeys(ids))

    def cancel(self) -> object:
        return self.store.cancel(QUEUE, self._some())

    def revive(self) -> object:
        ids = self._some()
        if self.rng.random() < 0.5:
            return self.store.revive(QUEUE, ids)
        shape = self.rng.choice(SHAPES)
        record = encode(Job(ids[0], QUEUE, "shop.one", b"[[1],{}]", self.clock(), controls=shape))
        self.sent.add(record)
        return self.store.revive(QUEUE, ids[:1], record=record)

    def edit(self) -> object:
        """Another record that keeps lane and priority, as only arguments and what follows them can be edited."""
        (id, *_), shape = self._some(), self.rng.choice(SHAPES)
        info = self.store.get(QUEUE, id)
        try:
            old = decode(id, QUEUE, info.record) if info else None
        except CorruptRecord:
            old = None
        if info is None or old is None:
            return self.store.edit(QUEUE, id, b"", was=b"")
        stay = {field: getattr(old.controls, field) for field in ("priority", "alone", "at_most_once")}
        record = encode(old._replace(args=b"[[2],{}]", controls=replace(shape, **stay)))
        self.sent.add(record)
        return self.store.edit(QUEUE, id, record, was=info.record)

    def list_all(self) -> object:
        state, cursor, met = self.rng.choice(list(State)), "", list[str]()
        while True:
            ids, cursor = self.store.walk(QUEUE, state, cursor, 2)
            met += ids
            if not cursor:
                counted = self.store.stats([QUEUE])[0].counts[state]
                assert self.damaged or len(met) == len(set(met)) == counted
                return met

    def drain(self) -> object:
        """A bounded claim; how much it leaves is asked, too."""
        mark = self.store.last_arrival(QUEUE)
        self.enqueue()
        claimed = self.store.claim(QUEUE, self.rng.choice(WORKERS), 3, lease=LEASE, up_to=mark)
        self.held += claimed.claims
        waiting = self.store.waiting(QUEUE, mark)
        assert self.damaged or waiting >= claimed.left
        return claimed

    def watch(self) -> object:
        """Somebody waits for the ends of some, and looks what has been told."""
        after, _ = self.store.watch_ends(QUEUE, self._some())
        return self.store.next_ends(QUEUE, after, list, 0.001)

    def delete(self) -> object:
        return self.store.delete(QUEUE, self._some())

    def kill(self) -> object:
        return self.store.kill(QUEUE, self._some(), "by hand")

    def reschedule(self) -> object:
        return self.store.reschedule(QUEUE, self._some(), self.clock() + 600)

    def pause(self) -> object:
        name, until = self.rng.choice((None, "shop.one", "shop.two")), self.clock() + 1_000
        return self.store.pause(QUEUE, name=name, reason="lunch", until=until)

    def resume(self) -> object:
        return self.store.resume(QUEUE, name=self.rng.choice((None, "shop.one", "shop.two")))

    def restore(self) -> object:
        id = f"job-{self.rng.randint(1, self.made + 1)}"
        record = self.records.setdefault(id, encode(Job(id, QUEUE, "shop.one", b"[[],{}]", self.clock())))
        self.sent.add(record)
        return self.store.restore(QUEUE, id, record, self.rng.choice((State.DEAD, State.SUCCEEDED)))

    def fleet(self) -> object:
        self.store.command_worker("parent", "quiet")
        self.store.update_document("notes", {"a": 1, "b": None})
        self.store.stats([QUEUE])
        lane = self.rng.choice((Lane.SHARED, Lane.ALONE))
        self.store.outlook([QUEUE], lane=lane)
        self.store.wake([QUEUE], lane=lane)
        self.store.find([QUEUE], f"job-{self.made}")
        self.store.sums([QUEUE], self.clock() - 600_000)
        self.store.holdings(QUEUE, "w1")
        self.store.refusal(QUEUE)
        self.store.waiting(QUEUE, self.store.last_arrival(QUEUE))
        return self.store.publish_worker("parent", {"pid": 1}, 2_000)
