"""A random walk through every verb of a store: reaches the states that nobody thinks of, the same way for each seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

from django_jobs.core.values import (
    PLAIN,
    Attempt,
    Claim,
    Completed,
    Completion,
    Controls,
    Ended,
    Job,
    Lane,
    NewJob,
    State,
)
from django_jobs.exceptions import CorruptRecord
from django_jobs.samples.log import COARSE, FINE
from django_jobs.serialization.record import decode, encode
from django_jobs.stores.redis import Store, lists
from django_jobs.stores.values.lists import Bars
from django_jobs.stores.values.workflows import DELETED, End
from django_jobs.workflows import engine
from django_jobs.workflows.packing import Start, pack

QUEUE = "walk"
LEASE = 1_000
#: of what two kinds of worker know; "" takes anything.
DIGESTS = ("", "old", "new")
WORKERS = ("alpha", "beta")
#: all times that a job can have, as two bars.
ALWAYS = Bars(0, 5_000_000_000_000, 2)
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

    def __init__(self, store: Store, clock: object, seed: int, *, damaged: bool = False) -> None:
        """`damaged`: somebody else writes into the store, so its numbers need not agree."""
        self.store, self.clock, self.rng, self.damaged = store, clock, random.Random(seed), damaged
        self.held: list[Claim] = []
        self.past: list[Claim] = []
        self.records: dict[str, bytes] = {}
        self.sent: set[bytes] = set()
        self.made = 0
        self.flows: list[str] = []
        self.log: list[str] = []

    def steps(self) -> tuple[Callable[[], object], ...]:
        """The verbs, as often as they shall come up."""
        return (
            *(self.enqueue, self.claim, self.complete) * 4,
            *(self.retry, self.settle, self.wait, self.extend, self.release) * 2,
            *(self.go_on_alone,) * 2,
            *(self.snooze, self.park, self.bury, self.discard, self.begin, self.checkin, self.transfer),
            *(self.recover, self.release_worker, self.promote, self.prune, self.reconcile, self.sample),
            *(self.cancel, self.revive, self.delete, self.kill, self.reschedule, self.pause, self.resume),
            *(self.fleet, self.edit, self.drain, self.list_all, self.list_some, self.look, self.watch),
            *(self.reserve, self.forget, self.leave, self.arrive),
            *(self.flow, self.batch, self.follow, self.follow, self.check, self.on_flow, self.archive),
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
        fills = self.made % 2 == 0
        return self.store.enqueue(QUEUE, jobs, max_length=self.rng.choice((0, 0, 12)), fills=fills)

    def reserve(self) -> object:
        """Ids of callers, in one queue or in another; some never get a job."""
        id, queue = f"own-{self.rng.randrange(6)}", self.rng.choice((QUEUE, "elsewhere"))
        known = self.store.reserve(queue, [id], lost=self.rng.random() < 0.3)
        if known or queue != QUEUE or self.rng.random() < 0.3:
            return known
        record = encode(Job(id, QUEUE, "shop.one", b"[[],{}]", self.clock()))
        self.records.setdefault(id, record)
        self.sent.add(record)
        return self.store.enqueue(QUEUE, [NewJob(id, record, digest="d")])

    def forget(self) -> object:
        """Forget ids, as after a day."""
        with patch("django_jobs.stores.redis.upkeep.LEAST_KEPT", 0):
            options, self.store.options = self.store.options, replace(self.store.options, idempotency=500)
            try:
                return self.store.forget_identities()
            finally:
                self.store.options = options

    def claim(self) -> object:
        done = self._done() if self.rng.random() < 0.2 else []
        completion = Completion(QUEUE, done) if done else None
        claimed = self.store.claim(
            QUEUE,
            self.rng.choice(WORKERS),
            self.rng.choice((1, 3)),
            lane=self.rng.choice((Lane.SHARED, Lane.ALONE)),
            lease=LEASE,
            max_running=self.rng.choice((0, 0, 6)),
            lease_each=self.rng.random() < 0.1,
            knows=self.rng.choice(DIGESTS),
            completion=completion,
        )
        assert completion is None or completion.stale is not None
        self.held += claimed.claims
        return claimed

    def go_on_alone(self) -> object:
        """A process of one job at a time ends one that must not run twice, and claims the next.  Its settings have no
        archive: with one, two scripts do this."""
        for claim in self.held:
            controls = self.store_controls(claim)
            if controls.at_most_once and claim.worker in WORKERS:
                self.held.remove(claim)
                self.past.append(claim)
                completion = Completion(QUEUE, [Completed(claim, b"[1]", 3, "shop.one", controls)])
                options, self.store.options = self.store.options, replace(self.store.options, archive=False)
                claimed = self.store.claim(
                    QUEUE, claim.worker, 1, lane=Lane.ALONE, lease=LEASE, knows="new", completion=completion
                )
                self.store.options = options
                self.held += claimed.claims
                return claimed
        return None

    # -- how attempts end -------------------------------------------------------

    def _take(self) -> Claim | None:
        if not self.held:
            return None
        claim = self.held.pop(self.rng.randrange(len(self.held)))
        self.past.append(claim)
        return claim

    def complete(self) -> object:
        return self.store.complete(QUEUE, self._done())

    def _done(self) -> list[Completed]:
        done = [claim for _ in range(self.rng.choice((1, 2))) if (claim := self._take())]
        return [Completed(claim, b"[1]", 3, controls=self.store_controls(claim)) for claim in done]

    def store_controls(self, claim: Claim) -> Controls:
        """The controls a worker reads from the claim's record; one that cannot be read it would bury."""
        try:
            return decode(claim.id, QUEUE, claim.record).controls
        except CorruptRecord:
            return PLAIN

    def retry(self) -> object:
        return (claim := self._take()) and self.store.retry(claim, FAILED, 400)

    def settle(self) -> object:
        """A batch of ends of all kinds, some of them of claims that are not held any more."""
        claims = [claim for _ in range(self.rng.choice((1, 3, 5))) if (claim := self._take())]
        if self.past and self.rng.random() < 0.3:
            claims.insert(0, self.rng.choice(self.past))
        return self.store.settle(QUEUE, [self._end_of(claim) for claim in claims])

    def _end_of(self, claim: Claim) -> Ended:
        match verb := self.rng.choice(("retry", "snooze", "park", "bury", "discard")):
            case "retry" | "snooze":
                return Ended(claim, verb, FAILED if verb == "retry" else None, self.rng.choice((0, 300)))
            case "park":
                return Ended(claim, verb, knows=self.rng.choice(DIGESTS))
            case _:
                return Ended(claim, verb, FAILED)

    def leave(self) -> object:
        """A retry in another queue."""
        claim = self._take()
        return claim and self.store.settle(QUEUE, [Ended(claim, "retry", FAILED, 400, queue="elsewhere")])

    def arrive(self) -> object:
        """Those that have left come there, as often as somebody says so; then they are found there."""
        entries, _ = self.store.end_calls(QUEUE, 0)
        keys = [key for key, _ in entries if ":moved:" in key]
        arrived = self.store.deliver(QUEUE, keys)
        if self.rng.random() < 0.5:
            self.store.drop_end_calls(QUEUE, arrived)
        return [self.store.find([QUEUE, "elsewhere"], id) for id in self._some()[:2]]

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
        self.store.check_turn(QUEUE, ("one", "other")[self.made % 2], LEASE)
        self.store._set_aside([self.store.keys.of(QUEUE)["wake"]])
        return self.store.reconcile(QUEUE)

    def sample(self) -> object:
        """What maintenance does every five minutes, and what a chart reads."""
        self.clock.now += self.rng.choice((0, FINE)) if self.damaged else 0
        self.store.sample([QUEUE])
        return [self.store.samples([QUEUE], width, types=types) for width in (FINE, COARSE) for types in (False, True)]

    def archive(self) -> object:
        """What the archiver does, if it is its turn."""
        archiver = self.rng.choice(("one", "other"))
        for queue in self.store.archive_turns([QUEUE], archiver, LEASE):
            self.store.archive_done(queue, [key for key, _ in self.store.archive_batch(queue, 5)])
        if self.rng.random() < 0.3:
            self.store.archive_leave([QUEUE], archiver)
        return None

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
        state, mark, met = self.rng.choice(list(State)), None, list[str]()
        while True:
            infos, mark = self.store.listed([QUEUE], state, 2, mark)
            met += [info.id for info in infos]
            if mark is None:
                counted = self.store.stats([QUEUE])[0].counts[state]
                assert self.damaged or len(met) == len(set(met)) == counted
                return met

    def list_some(self) -> object:
        state = self.rng.choice([State.DEAD, State.RETRY])
        groups = self.store.failure_groups([QUEUE], state, self.store.failure_kinds([QUEUE])[state])
        sums = self.store.failure_sums([QUEUE], state)
        assert self.damaged or sum(each.jobs for each in sums) == self.store.stats([QUEUE])[0].counts[state]
        listed, _ = self.store.listed([QUEUE], state, 5, groups=groups)
        number = self.store.stats([QUEUE])[0].counts[state]
        assert self.damaged or len(listed) == min(5, number)
        with patch.object(lists, "OPENED", 0):  # a page of thousands of groups takes several calls
            assert self.damaged or self.store.listed([QUEUE], state, 5, groups=groups)[0] == listed
        counted = [sum(bars) for bars in self.store.count_bars(state, groups, ALWAYS)]
        assert self.damaged or sum(counted) == number
        return groups, listed, counted

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
        return self.store.next_ends(QUEUE, after, 0.001)

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

    # -- workflows -------------------------------------------------------------------

    def _step(self, workflow: str, step: str, controls: Controls) -> Start:
        id = f"{workflow}.{step}"
        record = encode(Job(id, QUEUE, "shop.one", b"[[],{}]", self.clock(), controls=controls))
        self.sent.add(record)
        return Start(step, QUEUE, NewJob(id, record, controls, digest="step"))

    def flow(self) -> object:
        """A chain of three, the last of which cares or not for how the second ends."""
        self.made += 1
        id = f"w{self.clock():012x}{self.made:020x}"
        first, second, third = (
            self._step(id, str(n), Controls(workflow=id, noted_result=n == 0, priority=n)) for n in range(3)
        )
        self.store.add_workflow(
            id,
            {
                "kind": b"workflow",
                "name": b"",
                "created": self.clock(),
                "total": 3,
                "live": 1,
                "waiting": 2,
                "state": b"running",
                "o0": _outline(3),
                "f0": pack([first]),
                "firsts": 1,
                "wanting": b"1",
                "x": b"",
                "x:0": b"1",
                "x:1": b"2",
                "w:1": b"0",
                "u:0": 1,
                "d:1": pack([second]),
                "d:2": pack([third]),
                "l:1": b"1:0:w",
                "l:2": f"1:0:{self.rng.choice('wcr')}".encode(),
            },
            check_in=500,
        )
        self.flows.append(id)
        if self.rng.random() < 0.9:
            engine.start_first(self.store, id, [first])
        return id

    def batch(self) -> object:
        """Some jobs, of which one may never come; and the end of the block, or not."""
        self.made += 1
        id = f"b{self.clock():012x}{self.made:020x}"
        callbacks = [self._step(id, name, PLAIN) for name in ("on_success", "on_complete", "on_dead")]
        new = {"kind": b"batch", "name": b"", "created": self.clock(), "total": 0, "live": 0, "o0": b"[]"}
        members = [self._step(id, f"m{n}", Controls(workflow=id)) for n in range(3)]
        ids = [member.new.id for member in members]
        self.store.join_batch(id, QUEUE, ids, {**new, **{f"d:{each.step}": pack([each]) for each in callbacks}})
        self.flows.append(id)
        engine.start(self.store, members[: self.rng.choice((2, 3))])
        if self.rng.random() < 0.3:
            self.store.leave_batch(id, QUEUE, ids[2:])
        return self.rng.random() < 0.8 and engine.follow(self.store, id, [], "close")

    def follow(self) -> object:
        return [engine.advance(self.store, queue) for queue in self.store.unread([QUEUE])]

    def check(self) -> object:
        """All checks that are due, some of them on workflows of which nothing was heard for long."""
        if self.rng.random() < 0.2:
            self.clock.now += engine.CHECK
        for id in self.store.workflows_due(1_000, 1_000):
            engine.check(self.store, id, 5_000)
        return self.store.void(QUEUE, [f"{id}.9" for id in self.flows[-1:]])

    def on_flow(self) -> object:
        """What a person does, and what comes late or twice."""
        if not self.flows:
            return None
        id = self.rng.choice(self.flows[-5:])
        match self.rng.randrange(4):
            case 0:
                return engine.stop(self.store, id)
            case 1:
                return engine.retry(self.store, id)
            case 2:
                end = End(engine.step_of(id, f"{id}.0"), self.rng.choice((1, "=0")), self.rng.choice((DELETED, "dead")))
                return self.store.end_steps(id, [end])
            case _:
                return self.store.join_batch(id, QUEUE, [f"{id}.late"], {}) and self.store.forget_workflow("w-none")

    def fleet(self) -> object:
        self.store.command_worker("parent", "quiet")
        self.store.update_document("notes", {"a": 1, "b": None})
        self.store.stats([QUEUE])
        lane = self.rng.choice((Lane.SHARED, Lane.ALONE))
        self.store.outlook([QUEUE], lane=lane)
        self.store.lapsed([QUEUE])
        self.store.expire(QUEUE)
        self.store.upkeep_due([QUEUE])
        self.store.wake([QUEUE], lane=lane)
        self.store.find([QUEUE], f"job-{self.made}")
        self.store.sums([QUEUE], self.clock() - 600_000)
        self.store.holdings(QUEUE, "w1")
        self.store.refusal(QUEUE)
        self.store.waiting(QUEUE, self.store.last_arrival(QUEUE))
        return self.store.publish_worker("parent", {"pid": 1}, 2_000)


def _outline(steps: int) -> bytes:
    return json.dumps([["", "shop.one", QUEUE, [n - 1] if n else [], "wait"] for n in range(steps)]).encode()
