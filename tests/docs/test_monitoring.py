"""The dashboard and the alert rules: they load, and name only metrics and labels that are served."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from django_jobs.metrics import JobsCollector
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.docs.pages import ROOT

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
def served(redis_store: Store, db: None) -> dict[str, set[str]]:
    """Sample name → its labels."""
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
        "django_jobs_paused",  # an alarm says it, with the reason
        "django_jobs_alarm_since_timestamp_seconds",
        "django_jobs_alarms_unchecked",
        "django_jobs_trimmed_dead_total",
    }


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
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip(
            "promtool is not on PATH: prometheus_client's parsers check the metrics, and the tests above the rules."
        )
    from django_jobs import metrics

    use_store(redis_store)
    checked = subprocess.run([promtool, "check", "rules", str(RULES)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    checked = subprocess.run([promtool, "check", "metrics"], input=metrics.text(), capture_output=True)
    assert (checked.returncode, checked.stdout) == (0, b""), checked.stderr
    # The dashboard's expressions, as rules.
    recorded = [
        {"record": f"check:{number}", "expr": re.sub(r"\$\w+", "x", expr.replace("$__rate_interval", "5m"))}
        for number, (_, expr) in enumerate(expressions())
        if not expr.startswith("label_values")
    ]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    checked = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
