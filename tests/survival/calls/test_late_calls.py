"""A request that arrives after a later one of its sender: refused by its number, on whatever connection it comes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from django_jobs.core.values import Added, Claim, Controls, Done, Job, NewJob, State
from django_jobs.exceptions import StoreUnavailable
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection import scripts
from django_jobs.stores.redis.connection.errors import StoreLate
from django_jobs.stores.redis.connection.transport import Transport
from django_jobs.stores.redis.connection.transport import _in_doubt as in_doubt
from django_jobs.stores.values.options import StoreOptions
from tests.support.backends.redis_process import RedisServer
from tests.support.dose import dose
from tests.support.faults.dumps import difference, dump
from tests.support.faults.walking import FAILED, QUEUE, Walk
from tests.support.waiting import wait_until
from tests.survival.conftest import Clock

pytestmark = pytest.mark.redis

SEEDS = range(dose(4, ci=10, long=40))
STEPS = 250
Call = tuple[scripts.Script, Any, Any]


class Network:
    """Wraps a transport: keeps a copy of each numbered request, which may arrive again at any time."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.copies: list[Call] = []
        #: of a script of this name, the next request is late and nobody waits for it.
        self.delays = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def run(self, script: scripts.Script, keys: Any, args: Any) -> Any:
        if script.numbered:
            self.copies.append((script, keys, args))
        if script.name == self.delays:
            self.delays = ""
            raise StoreUnavailable
        return self.inner.run(script, keys, args)

    def run_together(self, calls: list[Call]) -> list[Any]:
        return [self.run(*call) for call in calls]

    def deliver(self, call: Call) -> None:
        """The copy arrives now."""
        with suppress(StoreLate):
            self.inner.run(*call)


class Doubtful(Network):
    """Every request may have been sent before: after each call an earlier one arrives again and must change nothing."""

    def __init__(self, inner: Transport, server: RedisServer, seed: int) -> None:
        super().__init__(inner)
        self.dice, self.client = random.Random(seed), server.client()

    def run(self, script: scripts.Script, keys: Any, args: Any) -> Any:
        reply = super().run(*in_doubt((script, keys, args)))
        if self.copies and self.dice.random() < 0.5:
            late = self.dice.choice(self.copies)
            before = dump(self.client)
            self.deliver(late)
            changed = difference(before, dump(self.client))
            assert not changed, f"{late[0].name}{late[2]!r} came late and changed {changed!r}"
        return reply


@pytest.mark.accepts("K06")
def test_whatever_comes_late_on_a_random_walk_changes_nothing(
    law_store: Store, virtual: Clock, quiet_server: RedisServer
) -> None:
    plain = law_store.transport
    for seed in SEEDS:
        plain.client.flushall()
        law_store.transport = network = Doubtful(plain, quiet_server, seed)  # type: ignore[assignment]
        walk = Walk(law_store, virtual, seed)
        for _ in range(STEPS):
            walk.step()
        network.client.close()


# -- what each late call did before it was refused ----------------------------------------------


@pytest.fixture
def store(quiet_server: RedisServer) -> Any:
    with quiet_server.client() as client:
        client.flushall()
    store = Store.from_setting(quiet_server.url, options=StoreOptions(history=0))
    store.transport = Network(store.transport)  # type: ignore[assignment]
    yield store
    store.close()


def new(id: str) -> NewJob:
    return NewJob(id, encode(Job(id, QUEUE, "shop.work", b"[[],{}]", 1)))


def claim(store: Store) -> list[Claim]:
    return store.claim(QUEUE, "worker", 10, lease=30_000).claims


def run(store: Store) -> list[str]:
    claims = claim(store)
    assert store.complete(QUEUE, [Done(claim) for claim in claims]) == []
    return [claim.id for claim in claims]


def late(store: Store, script: str, call: Callable[[], Any]) -> Call:
    """The call is made, given up, and still under way."""
    network: Any = store.transport
    network.delays = script
    with pytest.raises(StoreUnavailable):
        call()
    copy: Call = network.copies[-1]
    return copy


def test_a_claim_that_comes_when_its_worker_has_claimed_again_takes_nothing(store: Store) -> None:
    given_up = late(store, "claim", lambda: claim(store))
    assert claim(store) == []
    store.enqueue(QUEUE, [new("a")])
    store.transport.deliver(given_up)  # type: ignore[union-attr]
    assert run(store) == ["a"]


def test_an_enqueue_that_comes_when_its_job_has_run_and_gone_adds_no_second(store: Store) -> None:
    given_up = late(store, "enqueue_one", lambda: store.enqueue(QUEUE, [new("a")]))
    assert store.enqueue(QUEUE, [new("a")]) == [Added.ADDED]
    assert run(store) == ["a"]
    store.transport.deliver(given_up)  # type: ignore[union-attr]
    assert run(store) == []


def test_an_enqueue_made_again_after_its_job_has_come_and_gone_is_told_so(store: Store) -> None:
    given_up = late(store, "enqueue_one", lambda: store.enqueue(QUEUE, [new("a")]))
    store.transport.deliver(given_up)  # type: ignore[union-attr]
    assert run(store) == ["a"]
    assert store.enqueue(QUEUE, [new("a")]) == [Added.ADDED]
    assert run(store) == []


def test_a_duplicate_that_comes_when_the_unique_key_is_free_adds_nothing(
    store: Store, quiet_server: RedisServer
) -> None:
    controls = Controls(unique="0" * 64)
    jobs = [Job(id, QUEUE, "shop.work", b"[[],{}]", 1, controls=controls) for id in "ab"]
    holder, twin = (NewJob(job.id, encode(job), controls) for job in jobs)
    worker = Store.from_setting(quiet_server.url)
    assert worker.enqueue(QUEUE, [holder]) == [Added.ADDED]
    given_up = late(store, "enqueue_one", lambda: store.enqueue(QUEUE, [twin]))
    assert store.enqueue(QUEUE, [twin]) == [Added.DUPLICATE]
    assert run(worker) == ["a"]
    store.transport.deliver(given_up)  # type: ignore[union-attr]
    assert run(worker) == []
    worker.close()


def test_a_revive_that_comes_when_its_job_is_dead_again_leaves_it_there(store: Store) -> None:
    store.enqueue(QUEUE, [new("a")])
    store.bury(claim(store)[0], FAILED)
    given_up = late(store, "revive", lambda: store.revive(QUEUE, ["a"]))
    assert store.revive(QUEUE, ["a"]) == ["a"]
    store.bury(claim(store)[0], FAILED)
    store.transport.deliver(given_up)  # type: ignore[union-attr]
    assert store.get(QUEUE, "a").state is State.DEAD  # type: ignore[union-attr]


def test_a_pause_that_comes_after_the_resume_closes_nothing(store: Store) -> None:
    given_up = late(store, "pause", lambda: store.pause(QUEUE))
    store.resume(QUEUE)
    store.transport.deliver(given_up)  # type: ignore[union-attr]
    assert store.stats([QUEUE])[0].paused is None


def test_a_resume_that_comes_after_the_next_pause_opens_nothing(store: Store) -> None:
    store.pause(QUEUE)
    given_up = late(store, "resume", lambda: store.resume(QUEUE))
    store.pause(QUEUE, reason="still")
    store.transport.deliver(given_up)  # type: ignore[union-attr]
    assert store.stats([QUEUE])[0].paused is not None


def test_a_cancel_that_comes_after_its_job_was_revived_leaves_it_queued(store: Store) -> None:
    store.enqueue(QUEUE, [new("a")])
    given_up = late(store, "cancel", lambda: store.cancel(QUEUE, ["a"]))
    assert store.cancel(QUEUE, ["a"]) == {"a": State.CANCELLED}
    assert store.revive(QUEUE, ["a"]) == ["a"]
    store.transport.deliver(given_up)  # type: ignore[union-attr]
    assert store.get(QUEUE, "a").state is State.QUEUED  # type: ignore[union-attr]


def test_a_recovery_that_comes_after_the_lease_was_renewed_takes_nothing(store: Store) -> None:
    store.enqueue(QUEUE, [new("a")])
    (held,) = store.claim(QUEUE, "worker", 1, lease=1).claims
    wait_until(lambda: store.now() > held.claimed_at + 1, "the lease is over")
    given_up = late(store, "recover", lambda: store.recover(QUEUE))
    store.renew([QUEUE], ["worker"], 30_000)
    store.transport.deliver(given_up)  # type: ignore[union-attr]
    assert store.get(QUEUE, "a").state is State.RUNNING  # type: ignore[union-attr]


def test_a_time_that_comes_after_another_one_is_not_taken(store: Store) -> None:
    now = store.now()
    store.enqueue(QUEUE, [new("a")])
    given_up = late(store, "reschedule", lambda: store.reschedule(QUEUE, ["a"], now + 60_000))
    assert store.reschedule(QUEUE, ["a"], now + 90_000) == ["a"]
    store.transport.deliver(given_up)  # type: ignore[union-attr]
    assert store.get(QUEUE, "a").at == now + 90_000  # type: ignore[union-attr]


def test_a_restore_that_comes_after_the_deletion_brings_nothing_back(store: Store) -> None:
    given_up = late(store, "restore", lambda: store.restore(QUEUE, "a", new("a").record, State.DEAD))
    assert store.restore(QUEUE, "a", new("a").record, State.DEAD)
    assert store.delete(QUEUE, ["a"]) == ["a"]
    store.transport.deliver(given_up)  # type: ignore[union-attr]
    assert store.get(QUEUE, "a") is None


#: Scripts that write and whose calls carry no number, with the reason why a late one does no harm.
UNNUMBERED = {
    "begin": "the token of the claim; the job begins once",
    "check_turn": "a turn that its process does not know of ends with its lease",
    "checkin": "the token of the claim; an older word of the same attempt stands until the next",
    "transfer": "the token of the claim; the holder is the same whenever it comes",
    "edit": "the record that it replaces: after another edit it changes nothing",
    "extend": "a lease that it renews for too long ends a lease later",
    "holdings": "counts what is there",
    "outlook": "removes pauses that have ended",
    "list": "reads only; its libraries could write",
    "bars": "reads only; its libraries could write",
    "groups": "reads only; its libraries could write",
    "waiting": "reads only; its libraries could write",
    "promote": "moves what is due",
    "prune": "forgets what is old",
    "refusal": "takes nothing out: no member has that name",
    "repair": "looks again at what it repairs",
    "sweep": "looks again at what it drops",
    "set_aside": "looks again at the type of the key",
    "wake": "somebody looks once more",
    "watch": "a word to nobody ends with the job",
    "publish_worker": "the fleet's: the next heartbeat says it again",
    "command_worker": "the fleet's: a parent that was told to stop is told again",
    "update_document": "the fleet's: each entry is written whole",
    "sample": "the time of the sample before it: after another one it changes nothing",
    "archive_done": "the digests of the entries that it removes",
    "archive_leave": "an archiver leaves when its process ends, and never takes a turn again",
    "archive_turns": "a turn that its archiver does not know ends with its lease",
    "void": "an id that the workflow's check found nowhere: the next check says that its job is gone",
    "workflow_build": "after the last part, nothing is written any more",
    "workflow_end": "the number of the note; an end that was looked up names the number before it",
    "workflow_index": "a check too many finds nothing to do, or forgets the workflow again",
    "workflow_join": "a job that never comes is found missing by the check of its batch",
    "workflows_due": "a check that nobody makes now is due again later",
}
_VERBS = r"[HZLRX]?(?:SET|DEL|ADD|REM|PUSH|POP|TRIM)\w*|H?INCRBY|P?EXPIRE|RENAME\w*"
WRITES = re.compile(rf"'(?:{_VERBS})'")


def test_each_script_that_writes_has_a_number_or_a_reason() -> None:
    written = {name for name in scripts.names() if WRITES.search(scripts.load(name).source.decode())}
    without = {name for name in written if not scripts.load(name).numbered}
    assert without == UNNUMBERED.keys()


def test_a_number_written_by_a_foreign_hand_stops_nobody(store: Store) -> None:
    store.enqueue(QUEUE, [new("a")])
    answers = store.keys.of(QUEUE)["answers"]
    for channel in store.transport.client.hkeys(answers):
        store.transport.client.hset(answers, channel, "999999:1:?")
    store.enqueue(QUEUE, [new("b")])
    assert run(store) == ["a", "b"]
