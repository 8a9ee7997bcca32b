"""Stats, metrics, queues and the token command."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from django_jobs import metrics
from django_jobs.core.values import Completed
from django_jobs.models import ApiToken
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.api.conftest import SETTINGS, Api

LABELS = ("queue", "job", "status", "state")


def samples(text: str) -> dict[tuple[str, ...], float]:
    """(name, label values…) → value."""
    return {
        (sample.name, *(sample.labels[key] for key in LABELS if key in sample.labels)): sample.value
        for child_processes in text_string_to_metric_families(text)
        for sample in child_processes.samples
    }


def test_counters_of_known_job_types_begin_at_0_in_their_queue(api: Api) -> None:
    seen = samples(api.get("metrics").content.decode())
    assert seen["django_jobs_enqueued_total", "default", "tests.greet"] == 0
    assert seen["django_jobs_dead_total", "default", "tests.greet"] == 0
    assert seen["django_jobs_processed_total", "small", "tests.swallow", "failed"] == 0
    assert ("django_jobs_enqueued_total", "small", "tests.greet") not in seen


@pytest.mark.accepts("R19", "K21")
def test_metrics_count_what_happened_per_queue_and_job(
    api: Api, store: Store, clock: Clock, work_off: Callable[..., int]
) -> None:
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    api.put("v1/jobs/tests.charge/2", {"data": ["4111"]})
    work_off()
    api.put("v1/jobs/tests.greet/3", {"data": ["Bob"]})
    store.claim("default", "lost", 1, lease=1)
    store.recover("default", worker="lost")
    clock.advance(5000)
    answer = api.get("metrics")
    seen = samples(answer.content.decode())

    assert answer["Content-Type"].startswith("text/plain")
    assert seen["django_jobs_enqueued_total", "default", "tests.greet"] == 2
    assert seen["django_jobs_processed_total", "default", "tests.greet", "succeeded"] == 1
    assert seen["django_jobs_processed_total", "default", "tests.charge", "failed"] == 1
    assert seen["django_jobs_retries_total", "default", "tests.charge"] == 1
    assert seen["django_jobs_recovered_total", "default"] == 1
    assert seen["django_jobs_queue_depth", "default"] == 1
    assert seen["django_jobs_queue_latency_seconds", "default"] >= 5
    assert seen["django_jobs_jobs", "default", "retry"] == 1
    assert seen["django_jobs_workers",] == 0


def test_histograms_of_waiting_and_running_are_valid_and_complete(
    api: Api, store: Store, clock: Clock, make_job: Any
) -> None:
    for number, (name, run_ms) in enumerate([("tests.greet", 7), ("tests.greet", 700), ("evil.1", 7), ("evil.2", 7)]):
        store.enqueue("default", [make_job(name=name)])
        clock.advance(2_000 * number)
        (held,) = store.claim("default", "w", 1, lease=30_000).claims
        store.complete("default", [Completed(held, run_ms=run_ms, wait_ms=2_000 * number)])
    registry = CollectorRegistry()
    metrics.register(registry)
    texts = api.get("metrics").content.decode(), openmetrics(registry).decode()
    for families in (text_string_to_metric_families(texts[0]), openmetrics_families(texts[1])):
        found = {
            (sample.name, sample.labels["job"], sample.labels.get("le", "")): sample.value
            for family in families
            if family.type == "histogram"
            for sample in family.samples
        }
        assert {job for _, job, _ in found} == {"tests.greet", "other"}
        run, wait = "django_jobs_run_seconds", "django_jobs_wait_seconds"
        assert found[f"{run}_bucket", "tests.greet", "0.01"] == 1
        assert found[f"{run}_bucket", "tests.greet", "0.5"] == 1
        assert found[f"{run}_bucket", "tests.greet", "1.0"] == 2
        assert found[f"{run}_bucket", "tests.greet", "+Inf"] == found[f"{run}_count", "tests.greet", ""] == 2
        assert found[f"{run}_sum", "tests.greet", ""] == pytest.approx(0.707)
        assert found[f"{wait}_bucket", "other", "2.5"] == 0
        assert found[f"{wait}_sum", "other", ""] == 10
        assert found[f"{wait}_count", "other", ""] == 2
        for metric in (run, wait):
            for job in ("tests.greet", "other"):
                counts = [count for (name, own, _), count in found.items() if (name, own) == (f"{metric}_bucket", job)]
                assert counts == sorted(counts)


def test_without_a_store_the_scrape_is_answered_and_says_so(api: Api, settings: Any) -> None:
    settings.DJANGO_JOBS = {**SETTINGS, "STORE": "redis://127.0.0.1:1/0"}
    use_store(None)
    answer = api.get("metrics")
    assert answer.status_code == 200
    assert samples(answer.content.decode()) == {("django_jobs_up",): 0}


def test_names_that_no_code_knows_share_one_label(store: Store, make_job: Any, api: Api) -> None:
    for number in range(20):
        store.enqueue("default", [make_job(name=f"evil.{number}")])
    seen = samples(api.get("metrics").content.decode())
    names = {key[2] for key, count in seen.items() if key[0] == "django_jobs_enqueued_total" and count}
    assert names == {"other"}
    assert seen["django_jobs_enqueued_total", "default", "other"] == 20


def test_a_registry_of_your_own_serves_them_too(store: Store, api: Api) -> None:
    registry = CollectorRegistry()
    metrics.register(registry)
    assert registry.get_sample_value("django_jobs_queue_depth", {"queue": "default"}) == 0


def test_stats_have_states_queues_and_totals(api: Api, work_off: Callable[..., int]) -> None:
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    work_off()
    api.put("v1/jobs/tests.greet/2", {"data": ["Ada"]})
    stats = api.get("v1/stats").json()
    assert (stats["states"]["queued"], stats["states"]["succeeded"], len(stats["states"])) == (1, 1, 9)
    assert stats["queues"]["default"]["queued"] == 1
    assert stats["queues"]["default"]["paused"] is False
    assert stats["totals"] == {"enqueued": 2, "succeeded": 1, "failed": 0, "retried": 0, "dead": 0}
    assert stats["workers"] == 0


def test_a_trend_has_what_happened_and_null_where_nobody_knows(
    store: Store, clock: Any, api: Api, work_off: Callable[..., int]
) -> None:
    clock.now -= clock.now % 3_600_000
    store.sample(["default"])
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    work_off()
    clock.advance(2 * 3_600_000)
    for path in ("v1/queues/default/trend", "v1/job-types/tests.greet/trend?queue=default", "v1/trend"):
        trend = api.get(path).json()
        assert (trend["period"], trend["seconds"]) == ("day", 3600)
        *before, gap = trend["stretches"]
        assert gap == {
            "start": "2027-01-15T08:00:00.000+00:00", "end": "2027-01-15T11:00:00.000+00:00",
            "succeeded": 1, "failed": 0, "dead": 0, "partial": False,
        }  # fmt: skip
        assert [each["succeeded"] for each in before] == [None] * 21
    hour = api.get("v1/job-types/tests.greet/trend?queue=default&period=hour").json()
    assert (hour["seconds"], hour["stretches"][-1]["end"]) == (300, "2027-01-15T10:05:00.000+00:00")
    assert len(api.get("v1/queues/default/trend?period=week").json()["stretches"]) == 166


def test_a_job_type_has_its_run_times_of_a_day_and_a_week_if_they_are_asked_for(
    store: Store, clock: Any, api: Api, settings: Any, work_off: Callable[..., int]
) -> None:
    store.sample(["default"])
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    work_off()
    for _ in range(2 * 24):
        clock.advance(3_600_000)
        store.sample(["default"])
    assert "run_times" not in api.get("v1/job-types/tests.greet").json()
    times = api.get("v1/job-types/tests.greet?times=true&queue=default").json()["run_times"]
    assert times["day"] == []
    (week,) = times["week"]
    assert (week["name"], week["queue"], week["attempts"]) == ("tests.greet", "default", 1)
    assert week["running"]["p50"] == week["running"]["p95"] == week["running"]["max"] <= 5
    call_command("jobs", "times", "--week", "--name", "tests.greet", "--json", stdout=(out := StringIO()))
    assert json.loads(out.getvalue()) == times["week"]
    assert Api("enqueue", "work").get("v1/job-types/tests.greet?times=true").status_code == 403
    assert api.get("v1/job-types/tests.greet?times=true&queue=nowhere").status_code == 404
    assert api.get("v1/job-types/nothing?times=true").status_code == 404
    settings.DJANGO_JOBS = {**SETTINGS, "QUEUES": {"default": {}} | {f"q{n}": {} for n in range(20)}}
    assert api.get("v1/job-types/tests.greet?times=true").status_code == 422
    assert api.get("v1/job-types/tests.greet").status_code == 200


def test_a_trend_of_nothing_is_refused(api: Api, settings: Any) -> None:
    assert api.get("v1/queues/nowhere/trend").status_code == 404
    assert api.get("v1/job-types/tests.greet/trend?queue=nowhere").status_code == 404
    assert api.get("v1/queues/default/trend?period=year").status_code == 422
    settings.DJANGO_JOBS = {**SETTINGS, "QUEUES": {"default": {}} | {f"q{n}": {} for n in range(20)}}
    answer = api.get("v1/job-types/tests.greet/trend")
    assert (answer.status_code, "queue" in answer.json()["detail"]) == (422, True)
    assert api.get("v1/job-types/tests.greet/trend?queue=q3").status_code == 200
    assert api.get("v1/trend").status_code == 200
    settings.DJANGO_JOBS = {**SETTINGS, "QUEUES": {f"q{n}": {} for n in range(101)}}
    answer = api.get("v1/trend")
    assert (answer.status_code, "more than 100 queues" in answer.json()["detail"]) == (422, True)


def test_alarms_and_their_metrics_are_those_of_the_overview(api: Api) -> None:
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    api.post("v1/queues/default/pause", {"reason": "deploy"})
    said = api.get("v1/alarms").json()
    found = {alarm["kind"]: alarm for alarm in said["alarms"]}
    assert {"no_workers", "paused"} <= set(found)
    assert (found["no_workers"]["severity"], found["no_workers"]["text"]) == (
        "critical",
        "1 job is waiting, and no worker is running.",
    )
    assert (found["paused"]["reason"], found["paused"]["queue"]) == ("deploy", "default")
    assert found["paused"]["since"]
    assert said["well"] is False
    (missing,) = [each for each in api.get("v1/findings").json() if each["kind"] == "no_worker"]
    assert (missing["severity"], missing["says"]) == ("error", found["no_workers"]["text"])
    seen = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(api.get("metrics").content.decode())
        for sample in family.samples
        if "alarm" in sample.name or "finding" in sample.name
    }
    assert seen["django_jobs_alarms", ("kind", "no_workers"), ("queue", ""), ("severity", "critical")] == 1
    assert seen["django_jobs_alarms", ("kind", "paused"), ("queue", "default"), ("severity", "notice")] == 1
    assert seen["django_jobs_findings", ("kind", "no_worker"), ("queue", ""), ("severity", "error")] == 1
    assert seen["django_jobs_alarms_unchecked",] == len(said["unchecked"])


def test_queues_are_paused_and_resumed(api: Api, work_off: Callable[..., int]) -> None:
    paused = api.post("v1/queues/default/pause", {"reason": "deploy \x1b[31m", "until": "2035-01-01T00:00:00Z"}).json()
    assert (paused["paused"], paused["until"]) == (True, "2035-01-01T00:00:00.000+00:00")
    assert paused["reason"].startswith("deploy")
    assert "\x1b" not in paused["reason"]
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    assert work_off() == 0
    assert {queue["name"]: queue["paused"] for queue in api.get("v1/queues").json()}["default"] is True
    assert api.post("v1/queues/default/resume", {}).json()["paused"] is False
    assert work_off() == 1
    assert api.post("v1/queues/default/pause", {"job": "tests.greet"}).json()["paused_jobs"] == ["tests.greet"]
    assert api.post("v1/queues/nowhere/pause", {}).status_code == 404


class TestTokenCommand:
    def run(self, *words: str) -> Any:
        out = StringIO()
        call_command("jobs", "token", *words, "--json", stdout=out)
        return json.loads(out.getvalue())

    def test_it_makes_lists_and_revokes(self) -> None:
        made = self.run("create", "shop", "--scope", "read", "--scope", "enqueue", "--job", "tests.greet")
        token = ApiToken.objects.with_secret(made["token"])
        assert token is not None
        assert (token.scopes, token.jobs) == (["read", "enqueue"], ["tests.greet"])
        (listed,) = self.run("list")
        assert listed["name"] == "shop"
        assert made["token"] not in str(listed)
        assert self.run("revoke", "shop")["revoked_at"]
        assert ApiToken.objects.with_secret(made["token"]) is None

    @pytest.mark.parametrize("words", [("create", "x"), ("create",), ("revoke", "nobody"), ("revoke",)])
    def test_it_says_what_is_missing(self, words: tuple[str, ...]) -> None:
        with pytest.raises(CommandError):
            self.run(*words)

    def test_a_name_is_given_once(self) -> None:
        self.run("create", "shop", "--scope", "read")
        with pytest.raises(CommandError, match="There is a valid token of that name"):
            self.run("create", "shop", "--scope", "read")
