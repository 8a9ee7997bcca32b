"""No call and no answer carries hundreds of megabytes, however large the jobs are."""

from __future__ import annotations

import tracemalloc

import pytest
from redis import Redis

from django_jobs.stores.values.sizes import MAX_BYTES, in_batches
from tests.contract.acts import LEASE, Q, claim, complete, counts, enqueue, start

#: bytes of a job's arguments
LARGE = 300_000
ARGS = b'[["' + b"x" * LARGE + b'"],{}]'
MANY = 40
MB = b'[["' + b"x" * 2**20 + b'"],{}]'


def test_batches_are_bounded_by_bytes_and_by_number():
    assert [len(batch) for batch in in_batches([MAX_BYTES] * 3, int)] == [1, 1, 1]
    assert [len(batch) for batch in in_batches([1] * 2500, int)] == [1000, 1000, 500]
    assert [len(batch) for batch in in_batches([MAX_BYTES // 2 + 1] * 5, int, 3)] == [2, 2, 1]
    assert list(in_batches([], int)) == []


class TestAClaimOfLargeJobs:
    @pytest.mark.parametrize("small", [0, 200])
    def test_takes_as_many_as_one_answer_should_carry_and_leaves_the_rest(self, store, make_job, small):
        enqueue(store, *[make_job(f"small-{n:03}") for n in range(small)])
        large = [f"large-{n:03}" for n in range(MANY)]
        for id in large:
            enqueue(store, make_job(id, args=ARGS))
        got: list[str] = []
        while len(got) < small + MANY:
            claimed = store.claim(Q, "w", 1000, lease=LEASE)
            sizes = [len(one.record) for one in claimed.claims]
            assert 0 < sum(sizes) < MAX_BYTES + LARGE + 200
            got += [one.id for one in claimed.claims]
            assert claimed.left == small + MANY - len(got)
        assert got == [*[f"small-{n:03}" for n in range(small)], *large]

    def test_takes_one_that_is_larger_than_that(self, store, make_job):
        huge = b'[["' + b"x" * (MAX_BYTES + 1) + b'"],{}]'
        enqueue(store, make_job("a", args=huge), make_job("b", args=huge))
        assert [[one.id for one in claim(store, 2)] for _ in range(3)] == [["a"], ["b"], []]


class TestWhatAClaimReads:
    """Sixteen small jobs, then 112 of 1 MB: what the first need says nothing about those behind them."""

    def put(self, store, make_job):
        enqueue(store, *[make_job(f"small-{n:02}") for n in range(16)])
        for n in range(112):
            enqueue(store, make_job(f"large-{n:03}", args=MB))

    def test_is_little_more_than_what_it_takes(self, store, make_job):
        """Without a server, the records are read into this process."""
        self.put(store, make_job)
        tracemalloc.start()
        try:
            claimed = store.claim(Q, "w", 128, lease=LEASE)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert [len(claimed.claims), claimed.left] == [16 + 4, 108]
        assert peak < 4 * MAX_BYTES

    @pytest.mark.redis
    def test_is_on_a_server_at_most_sixteen_records_more(self, redis_store, redis_server, make_job):
        self.put(redis_store, make_job)
        read, key = 0, redis_store.keys.of(Q)["jobs"]
        with Redis.from_url(redis_server) as watcher, watcher.monitor() as monitor:
            assert len(redis_store.claim(Q, "w", 128, lease=LEASE).claims) == 16 + 4
            redis_store.transport.command("ECHO", "the end")
            for heard in monitor.listen():
                words = heard["command"].split()
                if words[0] == "ECHO":
                    break
                if words[:2] == ["HMGET", key]:
                    read += len(words) - 2
        assert 16 + 4 <= read <= 16 + 4 + 16


def test_jobs_that_expire_are_told_in_answers_of_bounded_size(store, make_job, clock):
    for n in range(MANY):
        enqueue(store, make_job(f"a-{n:02}", args=ARGS, expires_at=clock.now + 5))
    clock.advance(5)
    got, more = list[str](), True
    while more:
        late, more = store.expire(Q)
        assert sum(len(job.record) for job in late) < MAX_BYTES + LARGE + 200
        got += [job.id for job in late]
    assert got == [f"a-{n:02}" for n in range(MANY)]


def test_what_a_lost_worker_held_is_all_taken_back_however_large(store, make_job):
    start(store, *[make_job(f"a-{n}", args=ARGS) for n in range(14)])
    start(store, *[make_job(f"b-{n}", args=ARGS) for n in range(14)])
    held = claim(store, 100)
    assert len(store.recover(Q, worker="w")) == 28 + len(held)
    assert counts(store) == {"queued": 28}
    assert store.recover(Q, worker="w") == []


def test_the_archive_is_read_in_batches_of_bounded_size(make_store, make_job):
    store = make_store(archive=True, history=1000)
    for n in range(MANY):
        complete(store, *start(store, make_job(f"a-{n:02}", args=ARGS)))
    got: list[str] = []
    while batch := store.archive_batch(Q, 1000):
        assert sum(len(info.record) for _, info in batch) < MAX_BYTES + 16 * LARGE
        got += [info.id for _, info in batch]
        store.archive_done(Q, [key for key, _ in batch])
    assert got == [f"a-{n:02}" for n in range(MANY)]
