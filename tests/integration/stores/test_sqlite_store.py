"""What only the embedded store has to prove: many threads and processes on one file, kills, repairs, errors."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from django_jobs.stores.sqlite import SqliteStore
from django_jobs.stores.sqlite.database import connection

from django_jobs.core.values import Attempt, Done, State
from django_jobs.exceptions import StoreCorrupt, StoreMisconfigured, StoreUnavailable
from django_jobs.stores.values.options import StoreOptions

Q = "default"
ROOT = Path(__file__).resolve().parents[3]

#: Enqueues jobs one by one and prints each id when the store has said that it has it.
PRODUCER = """
import sys
from django_jobs.serialization.record import encode
from django_jobs.core.values import Job, NewJob
from django_jobs.stores.sqlite import SqliteStore

store = SqliteStore(sys.argv[1])
for n in range(10**6):
    id = f"{sys.argv[2]}-{n}"
    store.enqueue("default", [NewJob(id, encode(Job(id, "default", "n", b"[[],{}]", 1)))])
    print(id, flush=True)
"""


def run_python(code, *args):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, args)], stdout=subprocess.PIPE, env=env, text=True)


class TestTheSetting:
    def test_embedded_is_a_file_below_the_base_directory(self, tmp_path):
        store = SqliteStore.from_setting("embedded", base_dir=tmp_path)
        assert store.queues() == []
        assert (tmp_path / ".state" / "jobs.sqlite3").exists()
        store.close()

    def test_embedded_with_a_path_is_that_file(self, tmp_path):
        store = SqliteStore.from_setting(f"embedded:{tmp_path}/deep/er/j.db", base_dir="/nowhere")
        assert store.queues() == []
        assert (tmp_path / "deep" / "er" / "j.db").exists()
        store.close()

    def test_memory_is_each_stores_own(self, make_job):
        first, second = (SqliteStore.from_setting("memory", base_dir=".") for _ in range(2))
        first.enqueue(Q, [make_job()])
        assert second.queues() == []


class TestManyThreads:
    @pytest.mark.parametrize("fixture", ["memory_store", "embedded_store"])
    def test_claim_each_job_once(self, request, fixture, make_job):
        store = request.getfixturevalue(fixture)
        store.enqueue(Q, [make_job(str(n)) for n in range(300)])
        ran = []

        def work(name):
            while claims := store.claim(Q, name, 7, lease=30_000).claims:
                ran.extend(claim.id for claim in claims)
                assert store.complete(Q, [Done(claim) for claim in claims]) == []

        threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ran) == sorted(str(n) for n in range(300))
        assert store.stats([Q])[0].counts["succeeded"] == 300

    def test_may_use_a_store_that_another_has_closed(self, embedded_store, make_job):
        embedded_store.enqueue(Q, [make_job("a")])
        closer = threading.Thread(target=embedded_store.close)
        closer.start()
        closer.join()
        assert embedded_store.get(Q, "a") is not None


class TestManyProcesses:
    @pytest.mark.accepts("P03", "P05", "G04", "G01")
    def test_lose_no_acknowledged_job_when_they_are_killed(self, embedded_store):
        assert embedded_store.queues() == []
        producers = [run_python(PRODUCER, embedded_store.database.path, name) for name in "ab"]
        heard = [[producer.stdout.readline().strip() for _ in range(100)] for producer in producers]
        for producer in producers:
            producer.send_signal(signal.SIGKILL)
        for producer, ids in zip(producers, heard, strict=True):
            ids += producer.stdout.read().split()
            producer.wait()
            producer.stdout.close()
        acknowledged = [id for ids in heard for id in ids]
        assert len(acknowledged) >= 200
        assert [id for id in acknowledged if embedded_store.get(Q, id) is None] == []
        assert set(embedded_store.reconcile(Q).values()) == {0}

    def test_wake_each_other(self, embedded_store):
        assert embedded_store.queues() == []
        producer = run_python(PRODUCER, embedded_store.database.path, "a")
        try:
            assert embedded_store.wait_for_work([Q], 20) is not None
        finally:
            producer.kill()
            producer.communicate()

    def test_open_a_new_file_together(self, tmp_path):
        path = tmp_path / "new.sqlite3"
        code = "import sys; from django_jobs.stores.sqlite import SqliteStore; print(SqliteStore(sys.argv[1]).queues())"
        opened = [run_python(code, path) for _ in range(4)]
        assert [process.communicate()[0] for process in opened] == ["[]\n"] * 4


class TestAFork:
    def test_gets_connections_of_its_own(self, embedded_store, make_job):
        embedded_store.enqueue(Q, [make_job("before")])
        if (child := os.fork()) == 0:
            code = 1
            try:
                embedded_store.enqueue(Q, [make_job("child")])
                code = 0 if embedded_store.get(Q, "before") else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert embedded_store.get(Q, "child") is not None

    def test_is_refused_by_memory_with_the_remedy(self, memory_store, make_job):
        memory_store.enqueue(Q, [make_job("before")])
        if (child := os.fork()) == 0:
            code = 1
            try:
                memory_store.get(Q, "before")
            except StoreMisconfigured as error:
                code = 0 if "'embedded'" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0


class TestErrors:
    def test_of_a_file_that_is_no_database_name_it(self, tmp_path):
        path = tmp_path / "photo.jpg"
        path.write_bytes(b"\xff\xd8" * 4000)
        with pytest.raises(StoreCorrupt, match=r"photo\.jpg"):
            SqliteStore(path).queues()

    def test_of_a_directory_that_cannot_be_made_say_what_to_do(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(StoreMisconfigured, match="embedded:/path"):
            SqliteStore(tmp_path / "file" / "jobs.sqlite3").queues()

    def test_of_a_newer_file_say_so(self, embedded_store):
        embedded_store.queues()
        embedded_store.close()
        with sqlite3.connect(embedded_store.database.path) as raw:
            raw.execute("PRAGMA user_version = 99")
        raw.close()
        with pytest.raises(StoreMisconfigured, match="version 99"):
            embedded_store.queues()

    def test_of_a_locked_file_come_in_time(self, embedded_store, make_job, monkeypatch, pace):
        monkeypatch.setattr(connection, "BUSY_TIMEOUT", 0.1)
        embedded_store.enqueue(Q, [make_job("a")])
        other = sqlite3.connect(embedded_store.database.path, isolation_level=None)
        embedded_store.close()
        other.execute("BEGIN IMMEDIATE")
        begin = time.monotonic()
        with pytest.raises(StoreUnavailable, match="locked"):
            embedded_store.enqueue(Q, [make_job("b")])
        pace.within(begin, 5)
        assert embedded_store.get(Q, "a") is not None, "readers do not wait for a writer"
        other.execute("ROLLBACK")
        other.close()
        embedded_store.enqueue(Q, [make_job("b")])
        assert embedded_store.get(Q, "b") is not None


class TestRepairs:
    """Damage that no transition does, done by hand."""

    @pytest.fixture
    def damage(self, memory_store):
        def run(sql, *values):
            with memory_store.database.write() as raw:
                raw.execute(sql, values)

        return run

    def test_a_claim_without_a_lease_is_recovered(self, memory_store, make_job, damage):
        memory_store.enqueue(Q, [make_job("a")])
        memory_store.claim(Q, "w", 1, lease=30_000)
        damage("DELETE FROM leases")
        assert memory_store.reconcile(Q)["claim_without_lease"] == 1
        assert [found.id for found in memory_store.recover(Q)] == ["a"]

    def test_a_lease_that_holds_nothing_goes(self, memory_store, clock, damage):
        damage("INSERT INTO leases VALUES (?, 'w', ?)", Q, clock.now)
        assert memory_store.reconcile(Q)["lease_without_claim"] == 1
        assert memory_store.reconcile(Q)["lease_without_claim"] == 0

    @pytest.mark.parametrize("broken", ["state = 'lost'", "state = 'retry', at = NULL", "state = 'blocked'"])
    def test_a_job_that_is_nowhere_is_queued(self, memory_store, make_job, damage, broken):
        memory_store.enqueue(Q, [make_job("a")])
        damage(f"UPDATE jobs SET {broken}")
        assert memory_store.reconcile(Q)["job_without_place"] == 1
        assert [claim.id for claim in memory_store.claim(Q, "w", 1, lease=1000).claims] == ["a"]

    def test_a_place_without_a_job_goes(self, memory_store, make_job, damage):
        memory_store.enqueue(Q, [make_job("a")])
        damage("DELETE FROM records")
        assert memory_store.reconcile(Q)["place_without_job"] == 1
        assert memory_store.stats([Q])[0].counts["queued"] == 0

    def test_every_job_is_looked_at_in_a_round_of_bounded_steps(self, memory_store, make_job, damage):
        memory_store.enqueue(Q, [make_job(str(n)) for n in range(10)])
        damage("UPDATE jobs SET state = 'lost' WHERE id = '9'")
        steps = [memory_store.reconcile(Q, 3)["job_without_place"] for _ in range(4)]
        assert steps == [0, 0, 0, 1]

    @pytest.mark.accepts("G75", "G70")
    def test_a_lock_without_a_job_goes(self, memory_store, damage):
        damage("INSERT INTO locks VALUES (?, 'd', 'gone', 0)", Q)
        assert memory_store.reconcile(Q)["lock_without_job"] == 1

    def test_a_waiter_without_a_limit_is_let_in(self, memory_store, make_job, damage):
        memory_store.enqueue(Q, [make_job("a", limit_key="k", limit=1)])
        damage("UPDATE jobs SET state = 'blocked', blocked_by = 'limit:k'")
        assert memory_store.reconcile(Q)["waiter_without_limit"] == 1
        assert memory_store.get(Q, "a").state is State.QUEUED


@pytest.mark.parametrize("verb", ["complete", "retry"])
def test_an_end_that_a_locked_file_refused_was_not_recorded_and_is_taken_later(
    verb, make_sqlite_store, make_job, tmp_path, monkeypatch
):
    """An error always means that nothing was recorded: there is no answer that could be lost on the way."""
    monkeypatch.setattr(connection, "BUSY_TIMEOUT", 0.05)
    store = make_sqlite_store(tmp_path / "jobs.sqlite3")
    store.enqueue(Q, [make_job("a")])
    (claim,) = store.claim(Q, "w", 1, lease=1000).claims
    ends = {
        "complete": lambda: store.complete(Q, [Done(claim)]) == [],
        "retry": lambda: store.retry(claim, Attempt(1, "failed", 0), 0) is State.RETRY,
    }
    with closing(sqlite3.connect(tmp_path / "jobs.sqlite3", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked by another process"):
            ends[verb]()
        assert store.get(Q, "a").state is State.RUNNING
    assert ends[verb]()


#: what is asked all the time → the statement
HOT = {
    "claim": "SELECT job FROM jobs WHERE queue = ? AND state = 'queued' AND lane = 0 ORDER BY rank, seq LIMIT 9",
    "due": "SELECT job FROM jobs WHERE queue = ? AND state = 'retry' AND at <= 5 ORDER BY at, seq LIMIT 9",
    "page": "SELECT job FROM jobs WHERE queue = ? AND state = 'dead' AND at IS NOT NULL ORDER BY at DESC LIMIT 9",
    "trim": "SELECT job FROM jobs WHERE queue = ? AND state = 'succeeded' AND kept_until IS NULL ORDER BY at LIMIT 9",
    "limit": "SELECT count(*) FROM jobs WHERE queue = ? AND limit_key = 'k' AND state = 'running'",
    "oldest": "SELECT min(since) FROM jobs WHERE queue = ? AND state = 'queued'",
    "walk": "SELECT job, id FROM jobs WHERE queue = ? AND state = 'dead' AND job > 4 ORDER BY job LIMIT 9",
}


@pytest.mark.parametrize("name", HOT)
def test_what_is_asked_all_the_time_reads_an_index_only_as_far_as_it_must(memory_store, name):
    with memory_store.database.read() as raw:
        plan = [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {HOT[name]}", (Q,))]
    assert plan[0].startswith("SEARCH jobs USING")
    assert not [step for step in plan if step == "USE TEMP B-TREE FOR ORDER BY"]


def test_the_stores_own_clock_is_the_machines():
    before = time.time_ns() // 1_000_000
    assert before <= SqliteStore(":memory:", StoreOptions()).now() <= time.time_ns() // 1_000_000
