"""A request that arrives after a later one of its sender: refused by its number, on whatever connection it comes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from django_jobs.core.values import Added, Claim, Completed, Completion, Controls, Job, NewJob, State
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
from tests.support.faults.walking import QUEUE, Walk
from tests.support.waiting import wait_until
from tests.survival.conftest import Clock

pytestmark = pytest.mark.redis

SEEDS = range(dose(4, long=40))
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
            if late[0].name == "extend":  # the last heartbeat again: by the server's time it is another renewal
                changed = {key: values for key, values in changed.items() if not key.endswith(b":leases")}
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
    assert store.complete(QUEUE, [Completed(claim) for claim in claims]) == []
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


def test_a_recovery_that_comes_after_the_lease_was_renewed_takes_nothing(store: Store) -> None:
    store.enqueue(QUEUE, [new("a")])
    (held,) = store.claim(QUEUE, "worker", 1, lease=1).claims
    wait_until(lambda: store.now() > held.claimed_at + 1, "the lease is over")
    given_up = late(store, "recover", lambda: store.recover(QUEUE))
    store.renew([QUEUE], ["worker"], 30_000)
    store.transport.deliver(given_up)  # type: ignore[union-attr]
    assert store.get(QUEUE, "a").state is State.RUNNING  # type: ignore[union-attr]


def test_a_join_that_comes_after_its_jobs_have_left_does_not_keep_the_batch_open(store: Store) -> None:
    """The producer lost the answer, gave up, and took its jobs back."""
    new_batch: dict[str, bytes | int] = {"kind": b"batch", "created": 1}
    store.join_batch("b", QUEUE, ["first"], new_batch)
    given_up = late(store, "workflow_join", lambda: store.join_batch("b", QUEUE, ["second"], {}))
    store.leave_batch("b", QUEUE, ["second"])
    store.transport.deliver(given_up)  # type: ignore[union-attr]
    assert store.workflow_fields("b", ["total", "live"]) == [b"1", b"1"]


def test_a_command_that_comes_after_its_worker_has_read_the_next_one_is_not_given(store: Store) -> None:
    store.publish_worker("w", {}, 60_000)
    given_up = late(store, "command_worker", lambda: store.command_worker("w", "stop"))
    assert store.command_worker("w", "quiet")
    assert store.publish_worker("w", {}, 60_000) == ["quiet"]
    store.transport.deliver(given_up)  # type: ignore[union-attr]
    assert store.publish_worker("w", {}, 60_000) == []


def test_a_document_is_not_changed_by_a_late_update(store: Store) -> None:
    """A schedule that was paused, resumed, and must not be paused again by the network."""
    given_up = late(store, "update_document", lambda: store.update_document("schedules", {"nightly": "paused"}))
    store.update_document("schedules", {"nightly": "paused"})
    store.update_document("schedules", {"nightly": None})
    store.transport.deliver(given_up)  # type: ignore[union-attr]
    assert store.get_document("schedules") == {}


def test_an_update_whose_answer_was_lost_is_told_that_it_was_done(store: Store) -> None:
    network: Any = store.transport
    assert store.update_document("bulk", {"state": "run"}, expected={"state": None})
    assert network.inner.run(*in_doubt(network.copies[-1])) == 1


#: Scripts that read.  Their libraries could write; two of them remove what has ended, whenever they come.  And the
#: script that sets a broken key aside: the key that is broken may be the one with the numbers.
WITHOUT_NUMBER = {"list", "bars", "groups", "waiting", "outlook", "refusal", "set_aside"}
_VERBS = r"[HZLRX]?(?:SET|DEL|ADD|REM|PUSH|POP|TRIM)\w*|H?INCRBY|P?EXPIRE|RENAME\w*"
WRITES = re.compile(rf"'(?:{_VERBS})'")


@pytest.mark.accepts("K06")
def test_each_script_that_writes_has_a_number() -> None:
    written = {name for name in scripts.names() if WRITES.search(scripts.load(name).source.decode())}
    assert {name for name in written if not scripts.load(name).numbered} == WITHOUT_NUMBER


def test_a_number_written_by_a_foreign_hand_stops_nobody(store: Store) -> None:
    store.enqueue(QUEUE, [new("a")])
    answers = store.keys.of(QUEUE)["answers"]
    for channel in store.transport.client.hkeys(answers):
        store.transport.client.hset(answers, channel, "999999:1:?")
    store.enqueue(QUEUE, [new("b")])
    assert run(store) == ["a", "b"]


def write_higher_numbers(store: Store) -> None:
    """Somebody writes a higher number into the entry of each channel."""
    client = store.transport.client
    for answers in client.scan_iter("*:answers"):
        for channel in client.hkeys(answers):
            client.hset(answers, channel, "999999:1:?")


def test_nor_several_calls_in_one_round_trip(store: Store) -> None:
    store.transport = store.transport.inner
    ids = [f"order-{n}" for n in range(5)]
    store.reserve(QUEUE, ids)
    write_higher_numbers(store)
    assert store.reserve(QUEUE, ids) == {}
    store.enqueue(QUEUE, list(map(new, "abc")))
    first, held = [store.claim(QUEUE, "worker", 1, lease=30_000).claims[0] for _ in range(2)]
    assert store.complete(QUEUE, [Completed(first)]) == []
    write_higher_numbers(store)
    completion = Completion(QUEUE, [Completed(held)])
    store.claim(QUEUE, "worker", 1, lease=30_000, completion=completion)
    assert (completion.stale, store.get(QUEUE, held.id)) == ([], None)
