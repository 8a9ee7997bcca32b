"""Each odd text in place of each sound one: what shows it, counts it, archives it or goes on from it does not fail."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from django_jobs import archive, browse, schedules
from django_jobs.admin.common.charts import clock as clock_text
from django_jobs.admin.pages.errors import sparkline, store_day
from django_jobs.admin.pages.worker_rows import longest_running, worker_rows
from django_jobs.browse import trends
from django_jobs.browse.timeline import timeline
from django_jobs.core.values import JobInfo, State
from django_jobs.exceptions import CorruptRecord, StoreError
from django_jobs.formatting import exact, moment
from django_jobs.operations import bulk, error_inbox, releases, searching
from django_jobs.operations.diagnosis import problems_of
from django_jobs.schedules.listing import described
from django_jobs.schedules.scheduler import Periodic
from django_jobs.serialization.masking import masked
from django_jobs.serialization.payloads import job_payload, named_arguments, searchable_text
from django_jobs.serialization.record import decode, name_line, tags_of, type_of
from django_jobs.stores.redis import Store
from django_jobs.worker.maintenance.agenda import workflows
from tests.integration.odd.scene import QUEUES, Scene
from tests.integration.odd.values import odd_texts
from tests.support.dose import dose

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

#: Every so-manieth of the odd texts is tried.
STEP = dose(11, long=1)
#: The hashes that say something of each job, and the state of the job that is looked at.
OF_JOBS = {
    "jobs": State.SCHEDULED,
    "attempts": State.DEAD,
    "tries": State.DEAD,
    "results": State.SUCCEEDED,
    "checkins": State.RUNNING,
    "claims": State.RUNNING,
    "stops": State.RUNNING,
    "waits": State.DEAD,
}


def sendable(value: Any) -> None:
    """What programs get is JSON that every program can read."""
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


def look_at_errors() -> None:
    for error in error_inbox.inbox(["default"]).errors:
        sendable([error.as_json(), error.messages])
        moment(error.seen.last), exact(error.seen.first), sparkline(error, store_day())
        error_inbox.decide(error, by="ada", state="resolved")


def look_at_job(store: Store, id: str) -> None:
    info = store.get("default", id)
    if info is None:
        return
    for each in (info, *store.page("default", info.state)):
        for shown in (True, False):
            sendable(job_payload(each, show_arguments=shown))
            searchable_text(each, arguments=shown).encode()
            look_at_info(masked(each, arguments=shown))
    answer, reason = browse.why(info)
    sendable(browse.reason_payload(answer, reason))
    archive.write([info])
    for found in archive.found(id):
        sendable(job_payload(found))


def look_at_info(info: JobInfo) -> None:
    for ms in (info.at, info.since, info.parked_at, *(each.at for each in info.attempts)):
        moment(ms), exact(ms)
    name_line(info.record), type_of(info.record), tags_of(info.record)
    try:
        job = decode(info.id, info.queue, info.record)
    except CorruptRecord:
        return
    named_arguments(job)
    for part in timeline(info, job, 1_800_000_000_000):
        float(part.start), float(part.end)


class Failures(Counter[str]):
    """Counts what failed, and says it at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, str] = {}
        self.tried = 0

    def attempt(self, what: str, look: Callable[[], object]) -> None:
        self.tried += 1
        try:
            look()
        except StoreError:
            pass
        except Exception as error:
            frames, trace = [], error.__traceback__
            while trace is not None:
                frames.append(f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}")
                trace = trace.tb_next
            ours = [each.rpartition("django_jobs/")[2] for each in frames if "/django_jobs/" in each]
            kind = f"{type(error).__name__} at {ours[-1] if ours else frames[-1]}"
            self[kind] += 1
            self.first.setdefault(kind, f"{what[:200]}: {str(error)[:100]}")

    def report(self) -> None:
        print(f"tried {self.tried}, failed {sum(self.values())}")
        assert not self, "\n".join(f"{n} × {kind}, first {self.first[kind]}" for kind, n in self.most_common())


def each_odd(scene: Scene, key: str, field: bytes, sound: bytes, *looks: Callable[[], object]) -> Failures:
    failures = Failures()
    for odd in list(odd_texts(sound))[::STEP]:
        scene.client.hset(key, field, odd)
        for look in looks:
            failures.attempt(f"{field!r} is {odd[:120]!r}", look)
    scene.client.hset(key, field, sound)
    return failures


@pytest.mark.parametrize("kind", OF_JOBS)
def test_a_job_with_an_odd_value_is_shown_and_archived(scene: Scene, kind: str) -> None:
    id = scene.states[OF_JOBS[kind]]
    key = scene.key(kind)
    sound = scene.client.hget(key, id) or {"stops": b"7:web\0one\0a", "waits": b"one\0" + id.encode()}[kind]
    each_odd(scene, key, id.encode(), sound, lambda: look_at_job(scene.store, id)).report()


def test_an_odd_entry_for_the_archive_is_archived(scene: Scene) -> None:
    """Or the archive of its queue would stop there for good."""
    key, failures = scene.key("archive"), Failures()
    sound = scene.client.lindex(key, 0)
    attempts = scene.client.hget(scene.key("attempts"), scene.states[State.DEAD])
    fields = [b"dead", b"odd", b"1800000000000", b"w", b"1:0:0:0", b'7:{"a":1}', attempts, sound.rpartition(b":")[2]]
    entries = list(odd_texts(sound))[::STEP]
    for at, field in enumerate(fields):
        for odd in list(odd_texts(field))[::STEP]:
            entries.append(b"".join(b"%d:%s" % (len(part), part) for part in [*fields[:at], odd, *fields[at + 1 :]]))
    for entry in entries:
        scene.client.delete(key)
        scene.client.rpush(key, entry)

        def carry() -> None:
            found = scene.store.archive_batch("default")
            assert len(found) == 1
            archive.write([info for _, info in found])
            for _, info in found:
                for kept in archive.found(info.id):
                    sendable(job_payload(kept))
            scene.store.archive_done("default", [each for each, _ in found])

        failures.attempt(f"{entry[:200]!r}", carry)
    failures.report()


@pytest.mark.parametrize("name", ["web-1:4711", "odd:1"])
def test_a_worker_that_says_odd_things_is_shown(scene: Scene, name: str) -> None:
    store = scene.store

    def look() -> None:
        workers, now = store.workers(), store.now()
        worker_rows(workers, now), longest_running(workers, 9)
        for each in workers:
            for period in ("hour", "day", "week"):
                sendable(trends.trend_payload(trends.worker_trend(each, period)))
            problems_of(each, store.stats(["default"]), now)
        store.command_worker(name, "quiet")

    key = scene.key("workers")
    each_odd(scene, key, name.encode(), scene.client.hget(key, name), look).report()


@pytest.mark.parametrize("document", ["bulk", "schedules", "searches", "snapshot", "releases", "errors"])
def test_an_odd_fact_of_the_fleet_stops_nobody(scene: Scene, document: str) -> None:
    key = scene.key(f"document:{document}")

    def look() -> None:
        match document:
            case "bulk":
                known = {each.id for each in bulk.operations_list()} | set(bulk.unreadable())
                assert known
                for each in bulk.operations_list():
                    moment(each.started), moment(each.finished), str(each.percent)
                bulk.tick(0.0)
            case "schedules":
                sendable(described(schedules.entries()))
                for entry in schedules.entries():
                    schedules.last_run(entry), schedules.paused_at(entry)
                Periodic().tick()
            case "searches":
                searching.search([State.DEAD], browse.Match(text="odd"))
                searching.tick()
            case "releases" | "errors":
                look_at_errors()
                releases.noting("v3")()
            case "snapshot":
                counted = browse.job_counts()
                for each in counted.queues.values():
                    float(each.latency), moment(each.overdue_since), sum(each.counts.values())
                for period in ("hour", "day"):
                    browse.series(period)
                scene.clock.advance(5_000)
                browse.publish_snapshot()

    failures = Failures()
    dumped = scene.client.dump(key)
    for field, sound in sorted(scene.client.hgetall(key).items()):
        found = Failures()
        for odd in list(odd_texts(sound))[::STEP]:
            scene.client.restore(key, 0, dumped, replace=True)
            scene.client.hset(key, field, odd)
            found.attempt(f"{field!r} is {odd[:120]!r}", look)
        failures.update(found)
        failures.tried += found.tried
        failures.first |= found.first
    failures.report()


def test_an_odd_part_of_a_workflow_stops_no_workflow(scene: Scene) -> None:
    store, failures = scene.store, Failures()
    for flow in scene.flows:
        key = store.keys.workflow(flow)
        dumped = scene.client.dump(key)

        def look(flow: str = flow) -> None:
            for info in browse.find_workflows().rows:
                sendable(browse.workflow_payload(info))
            info = browse.workflow(flow)
            for step in browse.batch_jobs(info).rows if info.kind == "batch" else browse.steps(flow, 0, 50):
                sendable(browse.step_payload(step, None))
            scene.client.zadd(scene.key("workflow_checks"), {flow: 1})
            workflows(store, QUEUES)

        for field, sound in sorted(scene.client.hgetall(key).items()):
            for odd in list(odd_texts(sound))[::STEP]:
                scene.client.restore(key, 0, dumped, replace=True)
                scene.client.hset(key, field, odd)
                failures.attempt(f"{field!r} is {odd[:120]!r}", look)
        scene.client.restore(key, 0, dumped, replace=True)
    failures.report()


@pytest.mark.parametrize(
    "kind", ["samples", "minutes", "totals", "timed", "paused", "error_groups", "tag_groups", "errors"]
)
def test_odd_numbers_of_a_queue_are_shown(scene: Scene, kind: str) -> None:
    store, key, failures = scene.store, scene.key(kind), Failures()

    def look() -> None:
        now = store.now()
        for period in ("hour", "day", "week"):
            sendable([trends.trend_payload(each) for each in trends.queue_trends(["default"], period).values()])
            sendable(trends.trend_payload(trends.type_trend(["default"], "tests.greet", period)))
        for stats in store.stats(["default"]):
            float(stats.latency), [moment(pause.until) for pause in stats.paused_types.values()]
        for series in (store.sums(["default"], now - 3_600_000), store.sums(["default"], now - 90_000_000)):
            assert all(number >= 0 for events in series.values() for number in events.values())
        store.times(["default"])
        store.prune("default")
        scene.clock.advance(300_000)
        store.sample(["default"])
        for state in (State.DEAD, State.RETRY):
            store.failure_sums(["default"], state), store.tag_sums(["default"], state)
            sendable(browse.tag_payload(state, ["default"], 9))
        look_at_errors()
        clock_text(now)

    dumped, found = scene.client.dump(key), scene.client.hgetall(key)
    for field, sound in sorted(found.items())[:4]:
        for odd in list(odd_texts(sound))[::STEP]:
            scene.client.restore(key, 0, dumped, replace=True)
            scene.client.hset(key, field, odd)
            failures.attempt(f"{kind} {field!r} is {odd[:120]!r}", look)
    for name in list(odd_texts(next(iter(found))))[::STEP]:
        scene.client.restore(key, 0, dumped, replace=True)
        scene.client.hset(key, name, next(iter(found.values())))
        failures.attempt(f"{kind} has a field {name[:120]!r}", look)
    failures.report()
