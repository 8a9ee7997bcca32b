"""Visits the console as two people, and prints as JSON what they met."""

from __future__ import annotations

import json
import sys

import django

django.setup()

from django.contrib.auth import get_user_model  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.test import Client  # noqa: E402

from django_jobs import job  # noqa: E402
from django_jobs.models import AuditEntry, Schedule  # noqa: E402

CONSOLE = "/ops/django_jobs/dashboard/"


@job(name="greet")
def greet() -> None: ...


def visit(email: str, *may: str) -> dict[str, object]:
    person = get_user_model()(email=email, may=may)
    person.set_password("sesame")
    person.save()
    client = Client()
    gate = client.get("/ops/")
    entered = client.post(gate["Location"], {"username": email, "password": "sesame"})
    schedule = {"name": email, "job": "greet", "cron": "0 3 * * *", "args": "[]", "kwargs": "{}", "timezone": "UTC"}
    schedule |= {"missed": "one", "overlap": "allow", "jitter": "0", "priority": "0", "enabled": "on"}
    return {
        "gate": gate["Location"],
        "entered": entered.get("Location"),
        "overview": client.get(CONSOLE).status_code,
        "menu": client.get("/ops/django_jobs/").status_code,
        "store": client.get(f"{CONSOLE}store/").status_code,
        "pause": client.post(f"{CONSOLE}queues/default/", {"do": "pause"}).status_code,
        "add": client.post("/ops/django_jobs/schedule/add/", schedule).status_code,
    }


call_command("migrate", run_syncdb=True, verbosity=0)
met = {
    "operator": visit("ada@example.com", "view_jobs", "pause_queues", "add_schedule"),
    "reader": visit("bob@example.com", "view_jobs"),
    "nobody": visit("eve@example.com"),
    "schedules": [row.name for row in Schedule.objects.all()],
    "history": [[row.actor, row.verb] for row in AuditEntry.objects.order_by("pk")],
}
json.dump(met, sys.stdout)
