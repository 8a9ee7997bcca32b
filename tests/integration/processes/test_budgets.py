"""What a job may cost: round trips and commands, counted.  They fail when the cost grows; bench/ measures times."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from django.test import override_settings

from bench.monitor import sent_by_name
from django_jobs import Batch, Discard, Fail, Retry, Snooze, chain, current_job, group, job
from django_jobs.core.values import Attempt, Completed, Ended
from django_jobs.execution.executor import Executor
from django_jobs.execution.settle import settle
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.scripts import load
from django_jobs.stores.redis.connection.transport import Transport
from django_jobs.stores.values.sizes import SETTLED_AT_ONCE, SETTLED_BYTES
from django_jobs.worker.child.settler import Settler
from django_jobs.workflows import end_calls, engine
from django_jobs.workflows.watching import Watch
from tests.support.backends.cluster import running_cluster
from tests.support.backends.servers import running_redis
from tests.support.dose import dose
from tests.support.pace import TWENTY_MS
from tests.support.waiting import wait_until

pytestmark = pytest.mark.redis


@job(name="tests.budgets.nothing")
def nothing() -> None:
    """Costs nothing itself."""


@job(name="tests.budgets.goes_on_elsewhere")
def goes_on_elsewhere() -> None:
    if current_job().queue != "other":
        raise Retry(queue="other", in_=0)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The round trips of this process: a script's name, or the command."""
    made: list[str] = []
    run: Callable[..., Any] = Transport._run
    run_ahead: Callable[..., Any] = Transport.run_ahead
    together: Callable[..., Any] = Transport._together
    plain: dict[str, Callable[..., Any]] = {name: getattr(Transport, name) for name in ("_command", "_blocking")}

    def running(self: Transport, script: Any, keys: Any, args: Any) -> Any:
        made.append(script.name)
        return run(self, script, keys, args)

    def sending_plain(name: str) -> Callable[..., Any]:
        def commanding(self: Transport, args: Any, *wait: Any) -> Any:
            made.append(str(args[0]))
            return plain[name](self, args, *wait)

        return commanding

    def sending(self: Transport, script: Any, keys: Any, args: Any) -> Any:
        made.append(script.name)
        return run_ahead(self, script, keys, args)

    def sending_together(self: Transport, scripts: Any) -> Any:
        made.append("+".join(dict.fromkeys(script.name for script, *_ in scripts)))
        return together(self, scripts)

    monkeypatch.setattr(Transport, "_together", sending_together)
    monkeypatch.setattr(Transport, "_run", running)
    monkeypatch.setattr(Transport, "run_ahead", sending)
    for name in plain:
        monkeypatch.setattr(Transport, name, sending_plain(name))
    return made


@pytest.mark.accepts("R01", "G42")
def test_a_job_is_enqueued_in_one_round_trip(redis_store: Store, make_job: Any, calls: list[str]) -> None:
    redis_store.enqueue("default", [make_job()])
    calls.clear()
    redis_store.enqueue("default", [make_job()])
    redis_store.enqueue("default", [make_job(priority=5, unique="digest")])
    redis_store.enqueue("default", [make_job(run_in=1000)])
    assert calls == ["enqueue_one", "enqueue_one", "enqueue"]


@pytest.mark.accepts("R01")
@pytest.mark.parametrize("at_once", [1, 30, 500])
def test_claims_and_locks_of_many_jobs_are_tables(
    redis_store: Store, redis_server: str, make_job: Any, at_once: int
) -> None:
    """Redis looks for each field of a list of up to 512, from its beginning on: half of the time of a job."""
    few, many = 10, max(30, at_once)
    keys = redis_store.keys.of("default")

    def shapes(jobs: int) -> list[str]:
        for first in range(0, jobs, at_once):
            digests = [f"{n:064}" for n in range(first, min(first + at_once, jobs))]
            redis_store.enqueue("default", [make_job(unique=each, unique_mode="running") for each in digests])
        for _ in range(0, jobs, at_once):
            redis_store.claim("default", "w", at_once, lease=30_000)
        with redis.Redis.from_url(redis_server, decode_responses=True) as client:
            sizes = {client.hlen(keys[name]) for name in ("claims", "unique")}
            assert sizes == {jobs}
            return [str(client.object("encoding", keys[name])) for name in ("claims", "unique")]

    if at_once < few:
        assert "hashtable" not in shapes(few)
        with redis.Redis.from_url(redis_server) as client:
            client.delete(*client.keys(f"*{redis_store.options.namespace}*"))
    assert shapes(many) == ["hashtable", "hashtable"]


@pytest.mark.parametrize(
    "controls",
    [{}, {"alone": True}, {"priority": 5}, {"limit_key": "k", "limit": 9}, {"unique_mode": "running"}],
    ids=["plain", "timeout", "priority", "key limit", "unique"],
)
def test_a_thousand_jobs_of_a_kind_are_added_by_a_handful_of_commands(
    redis_store: Store, make_job: Any, redis_server: str, controls: dict[str, Any]
) -> None:
    def some() -> list[Any]:
        unique = [f"{next(numbers):064}" if "unique_mode" in controls else None for _ in range(1000)]
        return [make_job(unique=digest, **controls) for digest in unique]

    numbers = count()
    redis_store.enqueue("default", some())  # the server has the script
    with redis.Redis.from_url(redis_server) as client:
        client.config_resetstat()
        redis_store.enqueue("default", some())
        spent = {name: entry["calls"] for name, entry in client.info("commandstats").items()}
    assert sum(calls for name, calls in spent.items() if "config" not in name) <= 16, spent


@pytest.mark.accepts("K30")
def test_enqueue_many_takes_one_round_trip_per_thousand(redis_store: Store, calls: list[str]) -> None:
    use_store(redis_store)
    nothing.enqueue_many([(), ()])  # the server has the script
    calls.clear()
    nothing.enqueue_many(() for _ in range(2500))
    assert calls == ["enqueue_plain"] * 3


def test_ids_of_the_caller_cost_one_more_round_trip_per_thousand(redis_store: Store, calls: list[str]) -> None:
    use_store(redis_store)
    nothing.using(job_id="first").enqueue()  # the server has the scripts
    nothing.enqueue_many([(), ()], job_ids=["a", "b"])
    calls.clear()
    nothing.using(job_id="second").enqueue()
    assert calls == ["reserve", "enqueue_one"]
    calls.clear()
    nothing.enqueue_many([()] * 10_000, job_ids=[f"order-{n}" for n in range(10_000)])
    assert calls == ["reserve", "enqueue_plain"] * 10


@pytest.mark.accepts("G02")
def test_a_batch_runs_in_two_round_trips(redis_store: Store, make_job: Any, calls: list[str]) -> None:
    redis_store.enqueue("default", [make_job() for _ in range(100)])
    calls.clear()
    claims = redis_store.claim("default", "w", 100, lease=30_000).claims
    assert len(claims) == 100
    assert redis_store.complete("default", [Completed(claim) for claim in claims]) == []
    assert calls == ["claim", "complete"]


@pytest.mark.accepts("G02")
def test_a_batch_of_a_hundred_costs_less_than_half_a_command_each(
    redis_store: Store, make_job: Any, redis_server: str
) -> None:
    """Inside the server: every step is one command for the whole batch, so commands per job go to nothing."""
    redis_store.enqueue("default", [make_job() for _ in range(1000)])
    with redis.Redis.from_url(redis_server) as client:
        client.config_resetstat()
        for _ in range(10):
            claims = redis_store.claim("default", "w", 100, lease=30_000).claims
            redis_store.complete("default", [Completed(claim) for claim in claims])
        commands = sum(entry["calls"] for entry in client.info("commandstats").values())
    assert commands / 1000 <= 0.5


def test_a_single_job_costs_at_most_40_commands_in_the_server(
    redis_store: Store, make_job: Any, redis_server: str
) -> None:
    redis_store.enqueue("default", [make_job()])
    # The server knows every script from now on, whichever test ran before this one.
    redis_store.complete(
        "default", [Completed(claim) for claim in redis_store.claim("default", "w", 1, lease=30_000).claims]
    )
    with redis.Redis.from_url(redis_server) as client:
        client.config_resetstat()
        redis_store.enqueue("default", [make_job()])
        claims = redis_store.claim("default", "w", 1, lease=30_000).claims
        redis_store.complete("default", [Completed(claim) for claim in claims])
        spent = {name: entry["calls"] for name, entry in client.info("commandstats").items()}
    commands = sum(calls for name, calls in spent.items() if "config" not in name)
    assert commands <= 40, spent
    # A key costs the server a tenth of a read.
    assert sum(len(load(name, short=True).keys) for name in ("enqueue_one", "claim", "complete")) <= 51


def test_a_group_takes_at_most_twice_the_round_trips_of_its_jobs(redis_store: Store, calls: list[str]) -> None:
    """In enqueueing and in finishing; what a workflow costs besides its steps is a handful of calls."""
    use_store(redis_store)
    nothing.enqueue()
    calls.clear()
    nothing.enqueue_many([()] * 3000)
    jobs_alone = len(calls)
    drain(redis_store)
    calls.clear()
    group(*[nothing.s()] * 3000).then(nothing.s()).enqueue()
    assert len(calls) <= 2 * jobs_alone + 6
    calls.clear()
    drain(redis_store)
    assert Counter(calls)["complete"] == 4
    assert Counter(calls)["workflow_end"] == 4
    assert len(calls) <= 4 * 6 + 2


@pytest.mark.parametrize("kind", ["chains", "groups"])
def test_steps_of_many_workflows_take_a_tenth_of_a_call_each(redis_store: Store, redis_server: str, kind: str) -> None:
    """Their ends are applied together, also if each belongs to another workflow."""
    use_store(redis_store)
    steps = 900
    if kind == "chains":
        for _ in range(steps // 3):
            chain(*[nothing.s()] * 3).enqueue()
    else:
        for _ in range(steps // 9):
            group(*[nothing.s()] * 8).then(nothing.s()).enqueue()
    with redis.Redis.from_url(redis_server) as client:
        client.config_resetstat()
        drain(redis_store, 100)
        spent = {name: entry["calls"] for name, entry in client.info("commandstats").items()}
    assert redis_store.stats(["default"])[0].counts["succeeded"] == steps
    assert spent.pop("cmdstat_evalsha") / steps <= 0.1, spent
    assert sum(spent.values()) / steps <= 8, spent


def test_workflows_whose_checks_are_due_take_one_read_each_and_one_call_together(
    redis_store: Store, calls: list[str]
) -> None:
    use_store(redis_store)
    ids = [chain(nothing.s(), nothing.s()).enqueue().id for _ in range(20)]
    drain(redis_store)
    calls.clear()
    engine.check_all(redis_store, ids, 60_000)
    assert Counter(name for name in calls if name.startswith("workflow")) == {"workflow_index": 1}
    assert len(calls) <= 4 * len(ids), "what it knows, the server's time, and whether a step is left"


@pytest.mark.parametrize("kind", ["group", "batch"])
def test_waiting_for_3000_steps_takes_few_reads_and_fewer_while_nothing_happens(
    redis_store: Store, calls: list[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The steps are read once, in parts; while a job runs, only the state and one part are looked at again."""
    use_store(redis_store)
    if kind == "group":
        id = group(*[nothing.s()] * 3000).then(nothing.s()).enqueue().id
    else:
        with Batch() as batch:
            nothing.enqueue_many([()] * 3000)
        id = batch.id
    monkeypatch.setattr(redis_store, "end_of", lambda *_: Future())
    watch = Watch(redis_store, id, None)
    assert watch.look()
    calls.clear()
    found = [watch.look() for _ in range(8)]
    assert calls == ["HMGET"] * 8 * (3 if kind == "group" else 2)
    assert [each.patience for each in found if each] == [2, 4, 8, 10, 10, 10, 10, 10]
    executor, settler = Executor(close_connections=False), Settler(redis_store)
    seen: list[int] = []
    while claims := redis_store.claim("default", "w", 1000, lease=30_000).claims:
        settler.settle_now([executor.attempt(claim, redis_store) for claim in claims])
        calls.clear()
        watch.look()
        seen.append(len(calls))
    assert watch.look() is None
    assert max(seen) <= 16, seen


@pytest.mark.parametrize("is_async", [False, True], ids=["wait", "await_result"])
def test_who_waits_for_a_job_on_its_way_to_another_queue_reads_it_less_often_the_longer_it_takes(
    redis_store: Store, calls: list[str], is_async: bool
) -> None:
    with override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": {"default": {}, "other": {}}}):
        use_store(redis_store)
        handle = goes_on_elsewhere.enqueue()
        (claim,) = redis_store.claim("default", "w", 1, lease=30_000).claims
        settle(redis_store, Executor(close_connections=False).attempt(claim, redis_store))
        calls.clear()
        with pytest.raises(TimeoutError):
            asyncio.run(handle.await_result(2)) if is_async else handle.wait(2)
        assert len(calls) <= 60, Counter(calls)
        with ThreadPoolExecutor(1) as threads:
            told = threads.submit(handle.wait, 20)
            end_calls.follow(redis_store, "default")
            (claim,) = redis_store.claim("other", "w", 1, lease=30_000).claims
            settle(redis_store, Executor(close_connections=False).attempt(claim, redis_store))
            assert told.result() is None


@job(name="tests.budgets.fails", max_attempts=2, backoff=[60])
def fails(how: str) -> None:
    """End in that way."""
    raise {"retry": ValueError, "bury": Fail, "snooze": Snooze, "discard": Discard}[how]("no")


@pytest.mark.accepts("G42")
def test_jobs_that_fail_in_any_way_are_settled_in_one_round_trip(
    redis_store: Store, calls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    use_store(redis_store)
    fails.enqueue_many([(how,) for how in ("retry", "bury", "snooze", "discard") * 40])
    calls.clear()
    drain(redis_store)
    assert calls == ["claim", "settle", "claim"]
    fails.enqueue_many([("retry",)] * 500)
    nothing.enqueue_many([()] * 500)
    calls.clear()
    drain(redis_store)
    assert calls == ["claim", "settle", "settle", "settle", "complete", "claim"]


def drain(store: Store, at_once: int = 1000) -> None:
    """Run what waits, in batches, as a worker's thread does."""
    executor, settler = Executor(close_connections=False), Settler(store)
    while claims := store.claim("default", "w", at_once, lease=30_000).claims:
        settler.settle_now([executor.attempt(claim, store) for claim in claims])


@pytest.mark.redis
@pytest.mark.timed
def test_the_largest_batches_of_failures_hold_up_the_server_for_less_than_20_ms(
    redis_store: Store, make_job: Any, redis_server: str
) -> None:
    """As many jobs as one call ends, and as many bytes of tracebacks; the best of five calls of six."""
    for traceback in ("", "x" * (SETTLED_BYTES // SETTLED_AT_ONCE)):
        took = list[tuple[int, int]]()
        with redis.Redis.from_url(redis_server) as client:
            for turn in range(6):
                redis_store.enqueue("default", [make_job() for _ in range(SETTLED_AT_ONCE)])
                claims = redis_store.claim("default", "w", SETTLED_AT_ONCE, lease=30_000).claims
                errors = [Attempt(1, "failed", 0, 1, "w", "ValueError", f"{turn} {n}", traceback) for n in range(9)]
                verbs = ("retry", "bury")
                ended = [Ended(claim, verbs[n % 2], errors[n % 9], 60_000) for n, claim in enumerate(claims)]
                client.config_resetstat()
                assert None not in redis_store.settle("default", ended)
                client.eval(TWENTY_MS, 0)
                spent = client.info("commandstats")
                took.append((spent["cmdstat_evalsha"]["usec"], spent["cmdstat_eval"]["usec"]))
        assert min(mine / twenty_ms for mine, twenty_ms in took[1:]) < 1, took  # the first loads the script


#: What `idle_worker` starts: one parent, two children, the one that runs jobs alone, and the maintenance process.
PROCESSES = 5


@contextmanager
def idle_worker(store: str, queues: int, *, are_found: bool = False) -> Iterator[None]:
    """`are_found`: by a pattern, as they are in the store."""
    names = {"default": {}} | {f"q{n}": {} for n in range(1, queues)}
    if are_found:
        made = Store.from_setting(store)
        for name in names:
            made._register(name)
        made.close()
        names = {"*": {}}
    code = (
        "import os; from django.conf import settings; from tests import settings as s;"
        "os.environ['DJANGO_SETTINGS_MODULE'] = 'tests.settings';"
        f"s.DJANGO_JOBS = {{'STORE': {store!r}, 'QUEUES': {names!r}}};"
        "import django; django.setup();"
        "from django.core.management import call_command;"
        "call_command('runworkers', processes=2, verbosity=0, no_periodic=True)"
    )
    worker = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(30)


def idle_rate(servers: list[Any], has_started: Callable[[], bool]) -> float:
    """Commands per second and process, once the worker is idle."""
    wait_until(has_started, "the worker has started")
    while sent_by_name(servers, 6).total() > 6 * 3 * PROCESSES:  # longer than a beat of the leases
        continue  # starting is not idling, and a slow machine starts long
    seconds = dose(6, long=12)
    return sent_by_name(servers, seconds).total() / seconds / PROCESSES


@pytest.mark.accepts("R11", "P10")
@pytest.mark.survival
@pytest.mark.parametrize(("queues", "are_found"), [(3, False), (100, False), (1000, False), (500, True)])
def test_idle_workers_send_at_most_two_commands_per_second_and_process(queues: int, are_found: bool) -> None:
    with (
        running_redis() as url,
        redis.Redis.from_url(url) as client,
        idle_worker(url, queues, are_found=are_found),
    ):
        assert idle_rate([urlsplit(url).path], lambda: bool(client.keys("*workers"))) <= 2


@pytest.mark.accepts("R11", "P10")
@pytest.mark.survival
@pytest.mark.parametrize("queues", [5, 100])
def test_idle_workers_of_a_cluster_send_no_more(queues: int) -> None:
    with running_cluster() as setting, idle_worker(setting, queues):
        servers = [("127.0.0.1", int(host.rpartition(":")[2])) for host in urlsplit(setting).netloc.split(",")]
        store = Store.from_setting(setting)
        assert idle_rate(servers, lambda: bool(store.workers())) <= 2
        store.close()
