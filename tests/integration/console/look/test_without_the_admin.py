"""The console where the project's admin is not, and for people whom the project knows in its own way."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path

from django_jobs.admin.common.permissions import user_name
from django_jobs.core.values import State
from django_jobs.models import AuditEntry, Schedule
from django_jobs.operations import findings
from django_jobs.operations.diagnosis.report import address
from django_jobs.stores import get_store
from tests.integration.console.conftest import PERMISSIONS
from tests.support.console_data import Filler, fill_typical

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[4]
OPS = "/ops/django_jobs/dashboard/"
#: Of the console only; the test of both has a module of its own below.
urlpatterns = [path("ops/", include("django_jobs.admin.urls"))]
HERE = __name__
SCHEDULE = {
    "name": "nightly",
    "job": "shop.send_receipt",
    "cron": "0 3 * * *",
    "timezone": "UTC",
    "args": "[1]",
    "kwargs": "{}",
    "missed": "one",
    "overlap": "allow",
    "jitter": "0",
    "priority": "0",
    "enabled": "on",
}


class Both:
    """The addresses of a project that has the admin as well."""

    urlpatterns = [path("admin/", admin.site.urls), *urlpatterns]


def sent(request: HttpRequest) -> HttpResponse:
    return HttpResponse("the project's own page to sign in")


class OwnLogin:
    urlpatterns = [path("sign-in/", sent), *urlpatterns]


@pytest.fixture(autouse=True)
def only_the_console(settings: Any) -> None:
    settings.ROOT_URLCONF = HERE


def links(page: str) -> set[str]:
    """The addresses on a page that lead to other pages of this site."""
    found = {unescape(each) for each in re.findall(r'(?:href|action)="([^"#]+)', page)}
    return {each for each in found if not each.startswith(("http", "/static", "mailto", "javascript"))}


@pytest.mark.timeout(120)
def test_every_link_of_every_page_leads_to_a_page_of_the_console(
    console_store: Any, person: Callable[..., Client], settings: Any
) -> None:
    """Nothing on them depends on an admin, and the user is no staff."""
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "OUTBOX": True}
    fill_typical(console_store)
    Schedule.objects.create(name="nightly", job="shop.send_receipt", cron="0 3 * * *", args=[1])
    models = [f"{verb}_{model}" for model in ("schedule", "apitoken", "remotejobtype") for verb in ("add", "change")]
    client = person(*PERMISSIONS, *models, "view_archivedjob", staff=False)
    seen: dict[str, str] = {}
    ahead = ["/ops/"]
    while ahead:
        here = ahead.pop()
        # Three jobs, or three pages of a list, say what the others would.
        kind = re.sub(r"\?.*|[^/]*[0-9][^/]*", "", here)
        if here in seen or list(seen.values()).count(kind) >= 3 or "logout" in here:
            continue
        seen[here] = kind
        answer = client.get(here, follow=True)
        assert answer.status_code == 200, (here, answer.status_code)
        at = answer.redirect_chain[-1][0] if answer.redirect_chain else here
        for link in links(answer.text):
            full = link if link.startswith("/") else at.partition("?")[0] + link if link.startswith("?") else ""
            assert full.startswith("/ops/") or full in ("/", ""), (here, link)
            ahead += [full] if full.startswith("/ops/") else []
    kinds = set(seen.values())
    assert {OPS, f"{OPS}queues/", f"{OPS}history/", "/ops/django_jobs/schedule/"} <= kinds
    assert len(seen) > 40


def test_a_stranger_signs_in_here_and_needs_no_staff_status(console_store: Any, person: Callable[..., Client]) -> None:
    person("view_jobs", staff=False)
    user = User.objects.get(username="view_jobs")
    user.set_password("sesame")
    user.save()
    client = Client()
    gate = client.get(f"{OPS}workers/")
    assert gate["Location"] == f"/ops/login/?next={OPS}workers/"
    assert "password" in client.get(gate["Location"]).text
    given = {"username": "view_jobs", "password": "sesame", "next": f"{OPS}workers/"}
    assert client.post(gate["Location"], given)["Location"] == f"{OPS}workers/"
    assert client.get(f"{OPS}workers/").status_code == 200
    assert client.get("/ops/login/")["Location"] in ("/ops/", OPS)
    assert client.get("/ops/", follow=True).redirect_chain[-1][0] == OPS
    assert client.post("/ops/logout/").status_code == 200
    assert client.get(OPS).status_code == 302


def test_staff_without_the_permission_is_not_let_in(console_store: Any, person: Callable[..., Client]) -> None:
    client = person(*PERMISSIONS[1:])
    for page in ("/ops/", OPS, f"{OPS}jobs/dead/", "/ops/django_jobs/", "/ops/django_jobs/archivedjob/"):
        assert client.get(page)["Location"].startswith("/ops/login/"), page
    assert "authenticated as" in client.get("/ops/login/").text


def test_strangers_are_sent_to_the_login_page_of_the_project(
    console_store: Any, person: Callable[..., Client], settings: Any
) -> None:
    """If LOGIN_URL names one.  Somebody who has signed in and may not enter is not sent round in circles."""
    settings.ROOT_URLCONF, settings.LOGIN_URL = OwnLogin, "/sign-in/"
    assert Client().get(OPS, follow=True).redirect_chain[-1][0] == f"/sign-in/?next={OPS}"
    assert Client().get("/ops/login/")["Location"] == "/sign-in/?next=/ops/"
    assert person("run_schedules").get(OPS, follow=True).status_code == 403
    client = person("view_jobs", staff=False)
    assert client.get("/ops/login/", follow=True).redirect_chain[-1][0] == OPS
    settings.LOGIN_URL = "/ops/login/"
    assert "password" in Client().get(OPS, follow=True).text
    settings.LOGIN_URL = "admin:login"
    assert "password" in Client().get(OPS, follow=True).text


def test_each_of_two_sites_leads_to_its_own_pages(console_store: Any, root: Client, settings: Any) -> None:
    settings.ROOT_URLCONF = Both
    fill_typical(console_store)
    for mine, other in (("/ops/", "/admin/"), ("/admin/", "/ops/")):
        for page in ("dashboard/", "dashboard/jobs/dead/", "dashboard/schedules/", "schedule/", "archivedjob/", ""):
            found = links(root.get(f"{mine}django_jobs/{page}").text)
            assert any(link.startswith(mine) for link in found), page
            assert not any(link.startswith(other) for link in found), page


@pytest.mark.parametrize(("addresses", "at"), [(Both, "/ops/"), (HERE, "/ops/"), ("tests.urls", "/admin/")])
def test_a_finding_leads_to_the_console_that_is_there(
    console_store: Any, settings: Any, addresses: Any, at: str
) -> None:
    settings.ROOT_URLCONF = addresses
    Filler(console_store).make(State.DEAD)
    get_store().pause("default", reason="for a while", until=0, by="ada")
    found = {address(each) or "" for each in findings()}
    assert found
    assert all(each.startswith(f"{at}django_jobs/dashboard/") for each in found), found


# -- an authorizer ---------------------------------------------------------------------


def by_header(request: HttpRequest, permission: str) -> bool:
    """A proxy in front says what a visitor may do: the project has no users here."""
    return permission in request.headers.get("X-May", "").split()


class ByHeader:
    authorize = staticmethod(by_header)


def careless(request: HttpRequest, permission: str) -> Any:
    return request.headers.get("X-May", "")


def visitor(*may: str) -> Client:
    return Client(headers={"X-May": " ".join(f"django_jobs.{each}" for each in may)})


@pytest.mark.parametrize("name", ["by_header", "ByHeader"])
def test_an_authorizer_decides_instead_of_users(console_store: Any, root: Client, settings: Any, name: str) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "CONSOLE": {"AUTHORIZER": f"{HERE}.{name}"}}
    assert root.get(OPS).status_code == 302  # a superuser whom it does not know
    assert visitor("pause_queues").get(OPS).status_code == 302
    reader = visitor("view_jobs")
    assert reader.get(OPS).status_code == 200
    assert reader.post(f"{OPS}queues/default/", {"do": "pause"}).status_code == 403
    assert reader.get("/ops/django_jobs/schedule/").status_code == 403
    assert "schedule/" not in reader.get("/ops/django_jobs/").text.replace("schedules/", "")
    operator = visitor("view_jobs", "pause_queues", "add_schedule", "change_schedule", "delete_schedule")
    assert operator.post(f"{OPS}queues/default/", {"do": "pause"}).status_code == 302
    assert "/ops/django_jobs/schedule/add/" in operator.get(f"{OPS}schedules/").text


def test_visitors_without_a_user_change_rows_and_stand_in_the_history(console_store: Any, settings: Any) -> None:
    """The admin's own log would need a row of the table of users."""
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "CONSOLE": {"AUTHORIZER": f"{HERE}.by_header"}}
    operator = visitor("view_jobs", "add_schedule", "change_schedule", "delete_schedule")
    assert operator.post("/ops/django_jobs/schedule/add/", SCHEDULE).status_code == 302
    row = Schedule.objects.get()
    at = f"/ops/django_jobs/schedule/{row.pk}/"
    assert operator.post(f"{at}change/", {**SCHEDULE, "cron": "0 4 * * *"}).status_code == 302
    assert operator.get(f"{at}history/").status_code == 200
    assert operator.post(f"{at}delete/", {"post": "yes"}).status_code == 302
    assert not Schedule.objects.exists()
    assert [(entry.actor, entry.verb) for entry in AuditEntry.objects.order_by("pk")] == [
        ("AnonymousUser", verb) for verb in ("create", "change", "delete")
    ]
    assert "AnonymousUser" in operator.get(f"{OPS}history/").text


def test_an_authorizer_decides_in_the_admin_too(
    console_store: Any, person: Callable[..., Client], settings: Any
) -> None:
    """There, only staff comes as far as that."""
    settings.ROOT_URLCONF = Both
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "CONSOLE": {"AUTHORIZER": f"{HERE}.by_header"}}
    may = {"X-May": "django_jobs.view_jobs"}
    staff, customer = person(), person("view_jobs", staff=False)
    assert staff.get("/admin/django_jobs/dashboard/").status_code == 403
    assert staff.get("/admin/django_jobs/dashboard/", headers=may).status_code == 200
    assert customer.get("/admin/django_jobs/dashboard/", headers=may).status_code == 302


@pytest.mark.parametrize("header", ["yes", ""])
def test_an_answer_that_is_neither_true_nor_false_lets_nobody_in(
    console_store: Any, settings: Any, header: str
) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "CONSOLE": {"AUTHORIZER": f"{HERE}.careless"}}
    with pytest.raises(ImproperlyConfigured, match=r"careless returned a value of type str, not True or False"):
        Client(headers={"X-May": header}).get(OPS)


# -- users of any kind -----------------------------------------------------------------


def test_the_history_has_a_name_for_users_of_any_kind() -> None:
    class Token:
        def __str__(self) -> str:
            return "a token"

    for user, name in ((User(username="ada"), "ada"), (AnonymousUser(), "AnonymousUser"), (Token(), "a token")):
        request = HttpRequest()
        request.user = user  # type: ignore[assignment]
        assert user_name(request) == name


def run(*command: str, **environment: str) -> str:
    place = {"DJANGO_SETTINGS_MODULE": "tests.integration.own_users_project.settings"}
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env={**os.environ, **place, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_users_of_another_model_are_asked_as_they_want_to_be() -> None:
    """Their `has_perm` takes more than the permission; they have neither `is_staff` nor `has_module_perms`."""
    met = json.loads(run("-m", "tests.integration.own_users_project.visit").splitlines()[-1])
    fine = {"gate": "/ops/login/?next=/ops/", "entered": "/ops/", "overview": 200, "menu": 200, "store": 200}
    assert met["operator"] == {**fine, "pause": 302, "add": 302}
    assert met["reader"] == {**fine, "pause": 403, "add": 403}
    assert met["nobody"] == {**fine, "overview": 302, "menu": 302, "store": 302, "pause": 302, "add": 302}
    assert met["schedules"] == ["ada@example.com"]
    assert met["history"] == [["ada@example.com", "pause"], ["ada@example.com", "create"]]


def test_the_check_says_when_nobody_can_see_the_console() -> None:
    found = run("-m", "django", "check", OWN_USER="Stranger")
    assert "(django_jobs.W011) Nobody may see the console: users (own_users_project.Stranger) have no method" in found
    assert "W011" not in run("-m", "django", "check")
