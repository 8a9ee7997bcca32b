"""`runworkers` in processes of its own: it runs what is there, in all the ways a job can go."""

from __future__ import annotations

import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest

from django_jobs.core.values import State
from django_jobs.stores.values.answers import LONGEST_WAIT
from tests.integration.workers import WorkerSite, site
from tests.support.checker import most_at_once
from tests.support.pace import Pace
from tests.support.pools import ROOT, Pool
from tests.support.waiting import PATIENCE, wait_until

__all__ = ["site"]


def end_of_burst(pool: Pool, seconds: float = PATIENCE) -> str:
    assert pool.process.wait(seconds) == 0, pool.text()
    return pool.text()


@pytest.mark.accepts("O12", "G80", "G54")
def test_a_burst_runs_everything_once_and_ends(site: WorkerSite) -> None:
    ids = [site.put("work") for _ in range(300)] + [site.put("awork", 5) for _ in range(50)]
    ids += [site.put("work", 500, priority=-1) for _ in range(60)]  # more than a worker that ends at once could run
    result = site.put("add", 2, 3)

    end_of_burst(site.pool("--burst", processes=2))

    assert {site.info(id).state for id in ids} == {State.SUCCEEDED}
    assert sorted(event.id for event in site.ledger.read() if event.kind == "start") == sorted(ids)
    assert site.info(result).result == b"5"


@pytest.mark.accepts("G15", "P20")
def test_as_many_jobs_run_at_once_as_it_was_told_and_no_more(site: WorkerSite) -> None:
    for _ in range(24):
        site.put("work", 300)
    end_of_burst(site.pool("--burst", processes=2, threads=3))
    assert 4 <= most_at_once(site.ledger.read(), {}) <= 6


def test_a_burst_waits_for_retries_that_are_due_but_not_for_later_ones(site: WorkerSite) -> None:
    now, later = site.put("fails_once"), site.put("work", run_in=600_000)

    end_of_burst(site.pool("--burst"))

    assert (site.info(now).state, site.info(now).result) == (State.SUCCEEDED, b"2")
    assert site.info(later).state is State.SCHEDULED


def test_a_burst_does_not_wait_for_a_paused_queue(site: WorkerSite) -> None:
    held = site.put("work")
    site.store.pause("default", reason="maintenance")

    end_of_burst(site.pool("--burst"))

    assert site.info(held).state is State.QUEUED


@pytest.mark.accepts("G57")
def test_a_scheduled_job_starts_at_its_time_on_a_waiting_worker(site: WorkerSite) -> None:
    """Not at its next look, every LONGEST_WAIT: most of five rounds would be later with it."""
    pool = site.pool()
    site.wait(site.put("work"))
    late = []
    for _ in range(5):
        due = site.info(id := site.put("work", run_in=400)).at
        late.append(site.wait(id).at - due)

    assert min(late) >= 0, "never before its time"
    assert sorted(late)[2] < LONGEST_WAIT * 1000 / 8, f"ms from their time to their end: {late}"
    assert pool.stop() == 0


def test_snooze_is_not_a_failure(site: WorkerSite, tmp_path: Path) -> None:
    id = site.put("snoozes_once", str(tmp_path / "flag"))
    pool = site.pool()
    info = site.wait(id)

    assert (info.result, info.failures) == (b"1", 0)
    assert pool.stop() == 0


@pytest.mark.parametrize("how", ["snooze", "retry"])
def test_a_job_delivered_at_most_once_that_asks_for_another_start_is_dead_and_says_why(
    site: WorkerSite, how: str
) -> None:
    id = site.put("asks_again_once", how, at_most_once=True)
    end_of_burst(site.pool("--burst"))

    info = site.info(id)
    assert info.state is State.DEAD
    assert "delivery='at_most_once'" in info.attempts[-1].error
    assert [event.kind for event in site.ledger.read()] == ["start"]


class TestOnceUnlessFailed:
    """What the option `delivery="once_unless_failed"` stores with a job."""

    ONCE: ClassVar[dict[str, Any]] = {"at_most_once": True, "retried": True}

    def test_its_function_may_fail_and_run_again(self, site: WorkerSite) -> None:
        id = site.put("asks_again_once", "retry", max_attempts=3, **self.ONCE)
        end_of_burst(site.pool("--burst"))

        assert site.info(id).state is State.DEAD
        assert [event.kind for event in site.ledger.read()] == ["start"] * 3

    @pytest.mark.parametrize(
        ("job", "args", "options", "outcome"),
        [("poison", ["kill"], {}, "worker_lost"), ("deaf", [], {"timeout": 300}, "timeout")],
        ids=["its worker is lost", "its time limit is over"],
    )
    def test_it_never_runs_again_for_another_reason(
        self, site: WorkerSite, job: str, args: list[str], options: dict[str, int], outcome: str
    ) -> None:
        id = site.put(job, *args, **options, **self.ONCE)
        site.pool()
        info = site.wait(id, State.DEAD)

        assert (info.state, info.attempts[-1].outcome) == (State.DEAD, outcome)
        assert [event.kind for event in site.ledger.read()] == ["start"]


@pytest.mark.accepts("G26")
def test_the_newest_check_in_is_seen_while_the_job_runs_and_cancelling_stops_it(site: WorkerSite) -> None:
    id = site.put("says")
    site.pool()
    wait_until(lambda: (site.info(id).checkin or {}).get("message") == "second", "the second check-in", seconds=5)
    assert site.store.cancel("default", [id]) == {id: State.RUNNING}

    # Asked to stop, the job returned: that is an end like any other.
    assert site.wait(id, seconds=5).state is State.SUCCEEDED


@pytest.mark.timed
def test_a_slow_job_does_not_hold_up_what_was_claimed_with_it(site: WorkerSite, pace: Pace) -> None:
    site.pool(threads=2)
    site.wait(site.put("work"))
    slow = site.put("deaf", priority=5)
    quick = [site.put("work") for _ in range(20)]

    for id in quick:
        site.wait(id)
    assert site.info(slow).state is State.RUNNING
    ends = {event.id: event.at for event in site.ledger.read() if event.kind == "end"}
    began = next(event.at for event in site.ledger.read() if event.kind == "start" and event.id == slow)
    pace.took((max(ends[id] for id in quick) - began) / 1e9, 1, "the slow job takes a minute")


def test_jobs_that_turn_out_slower_than_those_before_are_shared_among_idle_threads(site: WorkerSite) -> None:
    """Claimed by the hundred because the last ones were tiny: none of them alone is slow, together they are."""
    site.pool(threads=4)
    for id in [site.put("work") for _ in range(300)]:
        site.wait(id)
    site.store.pause("default")
    slow = {site.put("work", 100) for _ in range(40)}
    site.store.resume("default")
    for id in slow:
        site.wait(id)
    events = [event for event in site.ledger.read() if event.id in slow]
    span = max(event.at for event in events) - min(event.at for event in events)
    busy = sum(event.at if event.kind == "end" else -event.at for event in events)
    assert busy / span > 1.6, "jobs at a time; one thread alone runs one"


@pytest.mark.timed
def test_many_async_jobs_run_at_once_in_one_process(site: WorkerSite) -> None:
    ids = [site.put("awork", 1500) for _ in range(60)]
    site.pool("--async-concurrency", "60", threads=2)
    site.ledger.wait("end", 60)

    events = site.ledger.read()
    starts = [event.at for event in events if event.kind == "start"]
    first_end = min(event.at for event in events if event.kind == "end")
    assert sum(start < first_end for start in starts) >= 30
    for id in ids:
        site.wait(id)


def test_the_event_loop_holds_no_more_jobs_than_it_may(site: WorkerSite) -> None:
    for _ in range(12):
        site.put("awork", 150)
    end_of_burst(site.pool("--burst", "--async-concurrency", "3", threads=2))

    running = most = 0
    for event in site.ledger.read():
        running += {"start": 1, "end": -1}.get(event.kind, 0)
        most = max(most, running)
    assert most <= 3


def test_a_process_is_replaced_after_its_number_of_jobs(site: WorkerSite) -> None:
    ids = [site.put("who") for _ in range(40)]
    end_of_burst(site.pool("--burst", "--max-jobs", "10"))

    pids = [site.info(id).result for id in ids]
    assert max(pids.count(pid) for pid in set(pids)) <= 10


def test_a_process_that_has_grown_is_replaced(site: WorkerSite) -> None:
    site.pool("--max-memory", "300")
    first = site.wait(site.put("grows", 400)).result
    wait_until(
        lambda: site.wait(site.put("who")).result != first, "another process runs the jobs", seconds=8, every=0.2
    )


def test_a_transaction_left_open_is_not_the_next_jobs(site: WorkerSite) -> None:
    site.pool(threads=1)
    site.wait(site.put("leaves_transaction_open"))
    for _ in range(3):
        assert site.wait(site.put("in_transaction")).result == b"false"


@pytest.mark.accepts("G68")
def test_workers_say_who_they_are_and_what_they_do(site: WorkerSite) -> None:
    pool = site.pool("--name", "east-1")
    id = site.put("until_stopped")
    site.ledger.wait("start", 1, seconds=5)

    def busy() -> object:
        return [
            (worker, job)
            for worker in site.store.workers()
            for child in worker.info["children"]
            for job in child["jobs"]
        ]

    ((worker, job),) = wait_until(busy, "a worker that says what it runs", seconds=5)  # type: ignore[misc]
    assert (worker.name, worker.info["pid"], worker.info["queues"]) == ("east-1", pool.pid, ["default"])
    assert (job["id"], job["name"]) == (id, "until_stopped")
    assert any(child["memory"] > 1 << 20 for child in worker.info["children"])
    assert pool.stop() == 0
    assert site.store.workers() == []


def test_a_worker_says_that_it_lives_several_times_within_a_lease(site: WorkerSite) -> None:
    site.jobs_settings["LEASE"] = 4
    site.pool("--name", "east-1")
    beats: set[int] = set()

    def counted() -> int:
        beats.update(worker.seen_at for worker in site.store.workers())
        return len(beats)

    wait_until(lambda: counted() >= 6, "it has said so six times")
    gaps = [later - earlier for earlier, later in pairwise(sorted(beats))]
    assert statistics.median(gaps) <= 4_000 / 4, "ms, of a lease of 4 s"


def test_an_operator_stops_a_worker_from_afar(site: WorkerSite) -> None:
    pool = site.pool("--name", "east-1")
    wait_until(site.store.workers, "the worker is known", seconds=5)

    assert site.store.command_worker("east-1", "stop")
    assert pool.process.wait(60) == 0


def test_a_quiet_worker_lives_and_claims_nothing(site: WorkerSite) -> None:
    pool = site.pool("--name", "east-1")
    wait_until(site.store.workers, "the worker is known", seconds=5)
    site.store.command_worker("east-1", "quiet")
    wait_until(lambda: site.store.workers()[0].info["state"] == "quiet", "it says so", seconds=5)

    id, seen = site.put("work"), site.store.workers()[0].seen_at
    wait_until(lambda: site.store.workers()[0].seen_at > seen + 500, "it has lived on", seconds=5)
    assert site.info(id).state is State.QUEUED
    assert pool.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--queues", "nope"], "There is no queue 'nope'"),
        (["--exclude-queues", "default"], "No queue is left"),
        (["--processes", "0"], "is not a whole number"),
        (["--processes", "100000"], "Use a whole number from 1 to 1024."),
        (["--threads", "100000"], "Use a whole number from 1 to 1024."),
        (["--async-concurrency", "1000000"], "Use a whole number from 1 to 10000."),
        (["--max-memory", "1073741824"], "is not a whole number that can be used"),
        (["--drain-timeout", "soon"], "is not a number of seconds"),
        (["--name", "one\ttwo"], "is not a valid name"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_a_reason(tmp_path: Path, arguments: list[str], words: str) -> None:
    where = WorkerSite(tmp_path, f"embedded:{tmp_path / 'store'}")
    ran = subprocess.run(
        [sys.executable, "-m", "django", "runworkers", *arguments],
        env=where.environment(), cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert ran.returncode != 0
    assert words in ran.stderr
