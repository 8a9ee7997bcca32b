"""The YAML of docs/howto/deploy.md has the shape that Kubernetes and KEDA expect, and fits what this package serves."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import load_command_class

from tests.docs.pages import ROOT, blocks

yaml = pytest.importorskip("yaml")
PAGE = ROOT / "docs" / "howto" / "deploy.md"


@pytest.fixture(scope="module")
def documents() -> dict[str, list[dict[str, Any]]]:
    """kind → the documents of that kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for block in blocks(PAGE, "yaml"):
        for document in yaml.safe_load_all(block.code):
            assert {"apiVersion", "kind", "metadata", "spec"} <= set(document)
            found.setdefault(document["kind"], []).append(document)
    return found


def test_the_deployment_starts_a_command_that_parses_and_probes_what_it_serves(
    documents: dict[str, list[dict[str, Any]]],
) -> None:
    (deployment,) = documents["Deployment"]
    assert deployment["apiVersion"] == "apps/v1"
    spec = deployment["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    (container,) = spec["template"]["spec"]["containers"]
    command = load_command_class("django_jobs", "runworkers")
    options = command.create_parser("manage.py", "runworkers").parse_args(container["command"][3:])
    (port,) = container["ports"]
    assert options.http == ("0.0.0.0", port["containerPort"])
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
        assert all(isinstance(value, int) for key, value in container[probe].items() if key != "httpGet")


def test_the_scalers_ask_for_numbers_that_exist(documents: dict[str, list[dict[str, Any]]]) -> None:
    from django_jobs import metrics
    from django_jobs.core.values import QueueStats

    names = {family.name for family in metrics.gauges([QueueStats("default")])}
    first, second = documents["ScaledObject"]
    (scaler,) = documents["HorizontalPodAutoscaler"]
    (authentication,) = documents["TriggerAuthentication"]
    assert scaler["apiVersion"] == "autoscaling/v2"
    assert scaler["spec"]["metrics"][0]["external"]["metric"]["name"] in names
    for each in (first, second):
        assert each["apiVersion"] == "keda.sh/v1alpha1"
        assert each["spec"]["scaleTargetRef"]["name"] == documents["Deployment"][0]["metadata"]["name"]
        for trigger in each["spec"]["triggers"]:
            assert all(isinstance(value, str) for value in trigger["metadata"].values())  # KEDA refuses numbers
    assert any(name in first["spec"]["triggers"][0]["metadata"]["query"] for name in names)
    assert second["spec"]["triggers"][0]["authenticationRef"]["name"] == authentication["metadata"]["name"]
    assert second["spec"]["triggers"][0]["metadata"]["valueLocation"] == "queues.default.latency"


def test_the_unit_of_systemd_has_a_watchdog() -> None:
    units = "\n".join(block.code for block in blocks(PAGE, "ini"))
    assert {"Type=notify", "WatchdogSec=300", "KillMode=mixed"} <= set(units.splitlines())
