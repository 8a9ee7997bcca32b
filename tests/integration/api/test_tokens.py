"""Tokens as people make them: in the admin and by the command."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

from django.core.management import call_command
from django.test import Client

from django_jobs import remote
from django_jobs.models import ApiToken, RemoteJobType

ADD = "/admin/django_jobs/apitoken/add/"


def made(*words: str) -> str:
    out = StringIO()
    call_command("jobs", "token", "create", "shop", "--scope=enqueue", *words, stdout=out)
    return out.getvalue()


def warnings(client: Client, path: str, jobs: str) -> list[str]:
    answer: Any = client.post(path, {"name": "shop", "scopes": ["enqueue"], "jobs": jobs}, follow=True)
    return [str(message) for message in answer.context["messages"] if "No job is named" in str(message)]


def test_the_command_warns_of_names_that_no_job_has_and_makes_the_token() -> None:
    said = made("--job=tests.greet", "--job=tests.gret")
    assert said.startswith("djt_")
    assert "No job is named tests.gret. Check the spelling" in said
    assert ApiToken.objects.get().jobs == ["tests.greet", "tests.gret"]


def test_programs_are_told_too() -> None:
    assert json.loads(made("--job=tests.gret", "--json"))["unknown_jobs"] == ["tests.gret"]


def test_names_of_jobs_and_of_remote_types_are_accepted_without_a_word() -> None:
    RemoteJobType.objects.create(name="php.mail", queue="pull")
    remote.forget()
    assert "No job is named" not in made("--job=tests.greet", "--job=php.mail")


def test_the_admin_warns_when_a_token_is_made_and_when_it_is_changed(admin_client: Client, settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.urls"
    assert warnings(admin_client, ADD, "tests.greet") == []
    change = f"/admin/django_jobs/apitoken/{ApiToken.objects.get().pk}/change/"
    (said,) = warnings(admin_client, change, "tests.greet tests.gret php.mial")
    assert "No job is named tests.gret, php.mial." in said
    assert ApiToken.objects.get().jobs == ["tests.greet", "tests.gret", "php.mial"]
