"""Tokens as people make them: in the admin and by the command."""

from __future__ import annotations

import json
import time
from io import StringIO
from typing import Any

import pytest
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from django_jobs import remote
from django_jobs.models import ApiToken, AuditEntry, RemoteJobType
from django_jobs.runtime import per_minute

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


def test_a_name_is_free_again_when_its_token_is_revoked_or_has_expired() -> None:
    made()
    with pytest.raises(CommandError, match="There is a valid token of that name"):
        made()
    call_command("jobs", "token", "revoke", "shop", stdout=StringIO())
    second = json.loads(made("--json", "--days=0.5"))
    assert second["expires_at"] is not None
    ApiToken.objects.filter(revoked_at=None).update(expires_at=timezone.now())
    made()
    call_command("jobs", "token", "revoke", "shop", stdout=StringIO())
    assert [token.revoked_at is None for token in ApiToken.objects.all()] == [False, False, False]


def test_a_token_gets_a_new_secret_by_the_command_and_in_the_admin(admin_client: Client, settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.urls"
    old = made().split()[0]
    out = StringIO()
    call_command("jobs", "token", "rotate", "shop", "--overlap=0.5", stdout=out)
    new = out.getvalue().split()[0]
    token = ApiToken.objects.get()
    assert [ApiToken.objects.with_secret(secret) for secret in (old, new)] == [token, token]
    form = {"action": "rotate", "_selected_action": [token.pk]}
    said = admin_client.post("/admin/django_jobs/apitoken/", form, follow=True).content.decode()
    newest = said[said.index("djt_") :].split()[0].rstrip(".")
    assert [ApiToken.objects.with_secret(secret) for secret in (old, new, newest)] == [None, token, token]
    assert [entry.verb for entry in AuditEntry.objects.filter(verb="rotate")] == ["rotate", "rotate"]
    for words in (("rotate", "nobody"), ("rotate", "shop", "--overlap=-1"), ("rotate", "shop", "--overlap=nan")):
        with pytest.raises(CommandError):
            call_command("jobs", "token", *words, stdout=StringIO())


@pytest.mark.parametrize("days", ["0", "-1", "nan", "1e9"])
def test_a_token_does_not_live_for_no_time_or_for_ever(days: str) -> None:
    with pytest.raises(CommandError, match="--days"):
        made(f"--days={days}")


def test_the_admin_sets_when_a_token_expires_and_lists_it(admin_client: Client, settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.urls"
    fields = {"name": "shop", "scopes": ["metrics"], "expires_at_0": "2035-01-31", "expires_at_1": "12:00:00"}
    assert admin_client.post(ADD, fields).status_code == 302
    token = ApiToken.objects.get()
    assert token.expires_at is not None
    assert (token.expires_at.year, token.scopes) == (2035, ["metrics"])
    assert "2035" in admin_client.get("/admin/django_jobs/apitoken/").content.decode()
    again = admin_client.post(ADD, fields)
    assert "There is a valid token of that name" in again.content.decode()


class Broken:
    """A cache whose server is away."""

    def add(self, *_: Any) -> None:
        raise ConnectionError

    incr = add


class TestRequestsPerMinute:
    @pytest.fixture(autouse=True)
    def minute(self, monkeypatch: pytest.MonkeyPatch, settings: Any) -> list[float]:
        """The time, which a test sets."""
        settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
        cache.clear()
        now = [time.time() // 60 * 60 + 15.0]
        monkeypatch.setattr(per_minute.time, "time", lambda: now[0])
        return now

    def get(self, secret: str) -> Any:
        return Client().get("/jobs/v1/stats", headers={"Authorization": f"Bearer {secret}"})

    def test_what_is_beyond_is_answered_429_until_the_next_minute(self, minute: list[float]) -> None:
        _, secret = ApiToken.objects.issue("shop", ["read"], per_minute=2)
        _, other = ApiToken.objects.issue("other", ["read"])
        assert [self.get(secret).status_code for _ in range(4)] == [200, 200, 429, 429]
        refused = self.get(secret)
        assert refused.headers["Retry-After"] == "45"
        assert refused.json()["type"].endswith("too-many-requests")
        assert "may make 2 requests a minute" in refused.json()["detail"]
        assert self.get(other).status_code == 200
        minute[0] += 45
        assert self.get(secret).status_code == 200

    @pytest.mark.parametrize("which", ["nothing is kept", "its server is away"])
    def test_without_a_cache_nobody_is_refused(
        self, settings: Any, monkeypatch: pytest.MonkeyPatch, which: str
    ) -> None:
        _, secret = ApiToken.objects.issue("shop", ["read"], per_minute=1)
        if which == "nothing is kept":
            settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
        else:
            monkeypatch.setattr(per_minute, "cache", Broken())
        assert [self.get(secret).status_code for _ in range(3)] == [200] * 3

    def test_a_token_needs_one_request_at_least(self) -> None:
        assert json.loads(made("--per-minute=7", "--json"))["per_minute"] == 7
        ApiToken.objects.get().revoke()
        with pytest.raises(CommandError, match="greater than or equal to 1"):
            made("--per-minute=0")
