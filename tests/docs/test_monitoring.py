"""The dashboard and the alert rules: they load, and name only metrics and labels that are served."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from django_jobs.conf import get_settings
from django_jobs.metrics import JobsCollector
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.docs.pages import ROOT
from tests.support.backends.missing import need

yaml = pytest.importorskip("yaml")

FOLDER = ROOT / "docs" / "monitoring"
DASHBOARD, RULES = FOLDER / "grafana-dashboard.json", FOLDER / "prometheus-alerts.yaml"
#: What stands in an expression besides metrics and labels.
WORDS = {
    "sum", "max", "min", "by", "on", "and", "or", "rate", "increase", "absent", "vector", "histogram_quantile",
    "label_values",
}  # fmt: skip
#: Sample names of each type of metric.
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


@pytest.fixture
def served(redis_store: Store, db: None, settings: Any) -> dict[str, set[str]]:
    """Sample name → its labels."""
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "OUTBOX": True}
    use_store(redis_store)
    return {
        family.name + suffix: {*family._labelnames, *({"le"} if suffix == "_bucket" else ())}
        for family in JobsCollector().collect()
        for suffix in SUFFIXES[family.type]
    }


def expressions() -> Iterator[tuple[str, str]]:
    """(where it stands, expression)."""
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]
    for rule in rules():
        yield rule["alert"], rule["expr"]


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def bare(expression: str) -> str:
    """Without texts, ranges, numbers and variables."""
    return re.sub(r'"[^"]*"|\[[^\]]*\]|\$\w+|\b\d[\w.]*', " ", expression)


@pytest.mark.parametrize(("place", "expression"), list(expressions()))
def test_an_expression_names_what_is_served(place: str, expression: str, served: dict[str, set[str]]) -> None:
    text = bare(expression)
    metrics = set(re.findall(r"\bdjango_jobs_\w+", text))
    assert metrics, place
    assert metrics <= set(served), place
    labels = set(re.findall(r"\b[a-z_]+\b", text)) - metrics - WORDS
    for label in labels:
        assert any(label in served[metric] for metric in metrics), (place, label)
    # A label in a selector belongs to the metric before it.
    for metric, selector in re.findall(r"\b(django_jobs_\w+)\{([^}]*)\}", expression):
        names = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
        assert names <= served[metric], (place, metric)
    for opening, closing in ("()", "{}", "[]"):
        assert expression.count(opening) == expression.count(closing), place


def test_every_metric_of_the_page_is_on_the_dashboard_or_in_a_rule(served: dict[str, set[str]]) -> None:
    used = {metric for _, expression in expressions() for metric in re.findall(r"\bdjango_jobs_\w+", expression)}
    unused = {re.sub(r"_(?:bucket|sum|count)$", "", name) for name in set(served) - used}
    histograms = {"django_jobs_wait_seconds", "django_jobs_run_seconds"}
    assert unused - histograms == {
        "django_jobs_paused",  # a finding says it, with the reason
        "django_jobs_finding_since_timestamp_seconds",
        "django_jobs_findings_unchecked",
        "django_jobs_alarms",  # the older names of findings
        "django_jobs_alarm_since_timestamp_seconds",
        "django_jobs_alarms_unchecked",
        "django_jobs_trimmed_dead_total",
    }


def test_a_sum_counts_what_several_web_processes_serve_once() -> None:
    """Each scraped process serves the numbers of the whole fleet."""
    for place, expression in expressions():
        for inner in re.findall(r"sum(?: by \([^)]*\))? ?\(\s*([a-z]+(?: by)?)", expression):
            assert inner == "max by", (place, expression)


def test_the_rule_for_silent_workers_fires_while_they_are_listed(redis_store: Store, clock: Clock, db: None) -> None:
    use_store(redis_store)
    (rule,) = [rule for rule in rules() if rule["alert"] == "JobsWorkerSilent"]
    limit = float(rule["expr"].rpartition(">")[2])
    lease = get_settings().lease
    redis_store.publish_worker("w-1", {}, round(lease * 2000))
    clock.advance(round(lease * 2000) - 15_000)  # a scrape comes every fifteen seconds
    (sample,) = [
        sample
        for family in JobsCollector().collect()
        for sample in family.samples
        if sample.name == "django_jobs_worker_last_heartbeat_seconds"
    ]
    assert lease / 6 * 2 < limit < sample.value


def test_the_dashboard_has_what_grafana_needs() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    known = {variable["name"] for variable in dashboard["templating"]["list"]} | {"__rate_interval", "__all"}
    assert set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text())) == known
    places = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & places, panel["title"]
        assert at["x"] + at["w"] <= 24
        places |= cells


def test_each_rule_has_a_name_a_severity_and_a_summary() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) > 8
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"]["summary"]
        used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        by = [set(re.findall(r"\w+", names)) for names in re.findall(r"\bby \(([^)]*)\)", rule["expr"])]
        assert not used or used <= by[0], rule["alert"]


def test_prometheus_own_checker_accepts_rules_and_metrics(redis_store: Store, db: None, tmp_path: Path) -> None:
    need("promtool")
    from django_jobs import metrics

    use_store(redis_store)
    checked = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    checked = subprocess.run(["promtool", "check", "metrics"], input=metrics.text(), capture_output=True)
    assert (checked.returncode, checked.stdout) == (0, b""), checked.stderr
    # The dashboard's expressions, as rules.
    recorded = [
        {"record": f"check:{number}", "expr": re.sub(r"\$\w+", "x", expr.replace("$__rate_interval", "5m"))}
        for number, (_, expr) in enumerate(expressions())
        if not expr.startswith("label_values")
    ]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    checked = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


#: Labels of the series that two scraped processes serve alike.
LABELS = {"queue": "q", "job": "j", "status": "succeeded", "state": "dead", "kind": "k", "severity": "error"}


def test_prometheus_adds_up_what_two_processes_serve_once_and_tells_of_silent_workers(tmp_path: Path) -> None:
    need("promtool")
    alike, wanted = set(), []
    for _, raw in expressions():
        if (found := re.match(r"sum(?: by \((\w+)\))?", raw)) is None:
            continue
        (metric,) = re.findall(r"\bdjango_jobs_\w+", raw)
        is_rate = "rate(" in raw
        alike.add((metric, "0+60x40" if is_rate else "7x40"))
        labels = f'{{{found[1]}="{LABELS[found[1]]}"}}' if found[1] else "{}"
        expression = raw.replace("$__rate_interval", "5m").replace("$queue", ".*").replace("$type", ".*")
        sample = {"labels": labels, "value": 60 / 15 if is_rate else 7}
        wanted.append({"expr": expression, "eval_time": "8m", "exp_samples": [sample]})
    assert len(wanted) >= 9
    labels = ", ".join(f'{name}="{value}"' for name, value in LABELS.items())
    series = [
        {"series": f'{metric}{{{labels}, instance="{instance}"}}', "values": values}
        for metric, values in sorted(alike)
        for instance in ("a", "b")
    ]
    beats = {"silent": "0+15x40", "lively": "3x40"}
    series += [
        {
            "series": f'django_jobs_worker_last_heartbeat_seconds{{worker="{worker}", instance="{instance}"}}',
            "values": values,
        }
        for worker, values in beats.items()
        for instance in ("a", "b")
    ]
    silent = {
        "exp_labels": {"severity": "warning", "worker": "silent"},
        "exp_annotations": {"summary": "Worker silent has sent no heartbeat for 30s"},
    }
    fired = [{"alertname": "JobsWorkerSilent", "eval_time": time, "exp_alerts": alerts} for time, alerts in
             (("15s", []), ("30s", [silent]))]  # fmt: skip
    file = tmp_path / "tests.yaml"
    test = {"interval": "15s", "input_series": series, "promql_expr_test": wanted, "alert_rule_test": fired}
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": [test]}))
    checked = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
