"""Values of sensitive arguments are found nowhere: an attack with a card number in every place that can quote it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client, override_settings
from django.views.debug import ExceptionReporter

from django_jobs import archive, job
from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.outcome import MAX_ERROR_BYTES
from django_jobs.core.values import State
from django_jobs.execution.executor import Executor
from django_jobs.logs import JobContextFilter
from django_jobs.models import Schedule
from django_jobs.operations import bulk
from django_jobs.serialization.masking import masked, shown_key
from django_jobs.serialization.payloads import job_payload
from django_jobs.serialization.record import decode
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler

CARD = "4111111111111111"
SPACED = "4111 1111 1111 1111"
SETTINGS = {"STORE": "memory", "ARCHIVE": {"DAYS": 1}}


def test_the_password_of_the_store_is_not_in_djangos_error_mails_and_pages() -> None:
    secret = "redis://jobs:sesame@localhost:6379/0"
    with override_settings(DJANGO_JOBS={"STORE": secret, "TEST_STORE": f"rediss{secret[5:]}"}):
        assert get_settings().store == secret
        reporter = ExceptionReporter(None, ValueError, ValueError("x"), None)
        for shown in (reporter.get_traceback_text(), reporter.get_traceback_html()):
            assert "DJANGO_JOBS" in shown
            assert "sesame" not in shown


def test_a_page_of_the_console_is_in_no_frame_whatever_the_middleware(admin_client: Client, settings: Any) -> None:
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "XFrameOptions" not in name]
    assert admin_client.get(BASE)["X-Frame-Options"] == "DENY"


class Declined(Exception):
    """Quotes its card in every way."""


def charge(order_id: int, card: str, *others: str, cvv: str = "") -> Any:
    logging.getLogger("shop").warning("charging %s", card)
    try:
        raise KeyError({"card": card})
    except KeyError as error:
        error.add_note(f"the card was {SPACED}")
        raise Declined(f"{'x' * (MAX_ERROR_BYTES - 8)}{card} cvv {cvv} of {others!r}") from error


@pytest.fixture
def charge_job() -> Iterator[Any]:
    task = job(name="shop.charge", sensitive=["card", "others", "cvv"], max_concurrency=3, concurrency_key="card",
               max_attempts=1)(charge)  # fmt: skip
    yield task
    if "shop.charge" in registry.names():
        registry.unregister("shop.charge")


@pytest.fixture
def dead(charge_job: Any, make_store: Callable[..., Store], settings: Any, db: None) -> tuple[Store, str]:
    """A job that has failed, in the store and in the archive."""
    settings.DJANGO_JOBS = SETTINGS
    store = make_store(archive=True)
    use_store(store)
    handle = charge_job.using(on_commit=False).enqueue(7, CARD, "ada@example.com", cvv="123")
    (claimed,) = store.claim("default", "w", 1, lease=30_000).claims
    Executor(close_connections=False, clock=store.now).run(claimed, store)
    info = store.get("default", handle.id)
    assert info is not None
    assert info.state is State.DEAD
    archive.write([info])
    return store, handle.id


def is_clean(text: str) -> bool:
    plain = text.replace(" ", "").replace("-", "")
    return CARD not in plain and "4111111" not in plain and "ada@example.com" not in text and "cvv 123" not in text


@pytest.mark.parametrize("knows", [True, False], ids=["type known", "type unknown"])
def test_nothing_shows_the_card(dead: tuple[Store, str], root: Client, knows: bool) -> None:
    _, id = dead
    if not knows:
        registry.unregister("shop.charge")
    row = archive.models.ArchivedJob.objects.get(job_id=id)
    pages = [
        f"{BASE}job/default/{id}/", f"{BASE}jobs/dead/", f"{BASE}jobs/dead/?group=1", f"{BASE}jobs/dead/?q=charge",
        BASE, f"{BASE}history/", f"/admin/django_jobs/archivedjob/{row.pk}/change/", "/admin/django_jobs/archivedjob/",
    ]  # fmt: skip
    for page in pages:
        response = root.get(page, follow=True)
        assert response.status_code == 200, page
        assert is_clean(response.text), page
    for words in (["show", id], ["list", "dead"], ["why", id], ["show", id, "--json"], ["list", "dead", "--json"]):
        out = StringIO()
        call_command("jobs", *words, stdout=out)
        assert is_clean(out.getvalue()), words
    for text in (CARD, CARD[:9], "ada@example"):
        assert "shop.charge" not in root.get(f"{BASE}jobs/dead/?q={text}").text.split("</form>")[-1], text
    assert "order_id" in root.get(f"{BASE}job/default/{id}/").text or not knows


def test_the_form_of_a_schedule_does_not_show_the_card_and_keeps_it(charge_job: Any, root: Client, db: None) -> None:
    call = {"args": [7], "kwargs": {"card": CARD}}
    row = Schedule.objects.create(name="monthly", job="shop.charge", cron="0 0 1 * *", **call)
    address = f"/admin/django_jobs/schedule/{row.pk}/change/"
    form = root.get(address).context["adminform"].form
    data = {name: "" if form[name].value() is None else form[name].value() for name in form.fields}
    data |= {"at_0": "", "at_1": "", "cron": "0 0 2 * *", "args": "[8]", "kwargs": json.dumps(form.initial["kwargs"])}
    assert is_clean(root.get(address).text)
    root.post(address, data)
    row.refresh_from_db()
    assert (row.cron, row.args, row.kwargs) == ("0 0 2 * *", [8], {"card": CARD})
    kept = json.dumps({"order_id": 8, **form.initial["kwargs"]})
    root.post(address, data | {"args": "", "kwargs": kept})
    row.refresh_from_db()
    assert (row.args, row.kwargs) == ([], {"order_id": 8, "card": CARD})
    # Under another job, which does not hide it, the value would be shown.
    assert "Leave it where it is" in root.post(address, data | {"job": "tests.console.open"}).text
    viewer = Client()
    viewer.force_login(User.objects.create_user("viewer", is_staff=True))
    User.objects.get(username="viewer").user_permissions.set(
        Permission.objects.filter(codename__in=["view_schedule", "view_jobs"])
    )
    page = viewer.get(address)
    assert "monthly" in page.text
    assert is_clean(page.text)
    for guess in ("kwargs__card__startswith", "kwargs__contains", "args__0"):
        assert viewer.get("/admin/django_jobs/schedule/", {guess: CARD[0]}).status_code == 400


@pytest.mark.parametrize(
    "lookup",
    [
        "archivedjob/?record__regex=4111",
        "archivedjob/?result__contains=1",
        "archivedjob/?log__contains=a",
        "archivedjob/?error__gt=a",
        "outboxentry/?data__regex=4111",
    ],
)
def test_an_address_cannot_filter_by_a_column_that_is_hidden(
    dead: tuple[Store, str], root: Client, lookup: str
) -> None:
    assert root.get(f"/admin/django_jobs/{lookup}").status_code == 400
    assert root.get("/admin/django_jobs/archivedjob/?status__exact=dead&run_ms__gte=0").status_code == 200


def test_the_search_of_the_archive_finds_no_argument_for_those_who_may_not_see_them(
    console_store: Store, person: Callable[..., Client]
) -> None:
    id = Filler(console_store).make(
        State.DEAD, "no account of bob@example.com", "LookupError", call=[[7], {"email": "bob@example.com"}]
    )
    info = console_store.get("default", id)
    assert info is not None
    archive.write([info])
    reader = person("view_jobs", "view_arguments", "view_archivedjob")
    viewer = person("view_jobs", "view_archivedjob")
    for text, found_by_viewer in (("bob@example.com", False), ("no account", True), ("send_receipt", True), (id, True)):
        assert id in rows_of(reader, text), text
        assert (id in rows_of(viewer, text)) == found_by_viewer, text


def rows_of(client: Client, text: str) -> list[str]:
    """The ids in the list of the archive that this search leads to."""
    page = client.get("/admin/django_jobs/archivedjob/", {"q": text})
    return [row.job_id for row in page.context["cl"].result_list]


def test_the_store_and_the_archive_keep_no_error_that_quotes_it(dead: tuple[Store, str]) -> None:
    store, id = dead
    info = store.get("default", id)
    assert info is not None
    attempt = info.attempts[-1]
    assert is_clean(attempt.error)
    assert is_clean(attempt.traceback)
    assert "Declined" in attempt.traceback
    row = archive.models.ArchivedJob.objects.get(job_id=id)
    assert is_clean(row.log + row.error)


def test_the_names_travel_with_the_job(dead: tuple[Store, str]) -> None:
    store, id = dead
    info = store.get("default", id)
    assert info is not None
    assert decode(id, "default", info.record).options.sensitive == "@1 card @2+ cvv"
    registry.unregister("shop.charge")
    payload = job_payload(info)
    assert payload["args"] == [7, "••••", "••••"]
    assert payload["kwargs"] == {"cvv": "••••"}


@pytest.mark.django_db
def test_of_an_unknown_type_without_names_everything_is_masked(console_store: Store, root: Client) -> None:
    filler = Filler(console_store)
    filler.make(State.DEAD, f"no {CARD}", id="it", name="shop.unknown", call=[[CARD], {"a": [CARD]}])
    info = console_store.get("default", "it")
    assert info is not None
    payload = job_payload(info)
    assert (payload["args"], payload["kwargs"], payload["error"]) == (["••••"], {"a": "••••"}, "TimeoutError: no ••••")
    assert is_clean(root.get(f"{BASE}job/default/it/").text)


def test_a_key_is_hashed_only_where_it_may_be_sensitive(dead: tuple[Store, str]) -> None:
    store, id = dead
    info = store.get("default", id)
    assert info is not None
    key = shown_key(decode(id, "default", info.record))
    assert key.startswith("shop.charge:#")
    assert CARD not in key
    again = decode(id, "default", masked(info).record)
    assert shown_key(again) == key
    registry.unregister("shop.charge")
    assert CARD not in shown_key(decode(id, "default", info.record))


def test_records_logged_inside_the_job_are_scrubbed(charge_job: Any, make_store: Callable[..., Store]) -> None:
    store = make_store()
    use_store(store)
    written = StringIO()
    handler = logging.StreamHandler(written)
    handler.addFilter(JobContextFilter())
    logging.getLogger("shop").addHandler(handler)
    try:
        charge_job.using(on_commit=False).enqueue(7, CARD)
        (claimed,) = store.claim("default", "w", 1, lease=30_000).claims
        Executor(close_connections=False, clock=store.now).run(claimed, store)
    finally:
        logging.getLogger("shop").removeHandler(handler)
    assert written.getvalue() == "charging ••••\n"


# -- the permission ----------------------------------------------------------------


def test_without_the_permission_there_are_no_arguments(
    console_store: Store, person: Callable[..., Client], db: None
) -> None:
    filler = Filler(console_store)
    id = filler.make(State.DEAD, "order 4242 is unknown", call=[[4242], {"email": "bob@example.com"}])
    viewer, reader = person("view_jobs"), person("view_jobs", "view_arguments")
    for page in (f"job/default/{id}/", "jobs/dead/", "jobs/dead/?group=1", "search/?q=shop."):
        assert ("order … is unknown" if "group" in page else "4242") in reader.get(BASE + page).text, page
        text = viewer.get(BASE + page).text
        assert "4242" not in text, page
        assert "bob@example.com" not in text, page
    assert "TimeoutError" in viewer.get(f"{BASE}job/default/{id}/").text
    assert id in reader.get(f"{BASE}jobs/dead/?q=bob@example.com").text
    assert id not in viewer.get(f"{BASE}jobs/dead/?q=bob@example.com").text
    assert id in reader.get(f"{BASE}search/?q=bob@example.com").text
    assert id not in viewer.get(f"{BASE}search/?q=bob@example.com").text
    editor = person("view_jobs", "retry_jobs")
    assert editor.get(f"{BASE}job/default/{id}/edit/").status_code == 403


def test_who_may_not_see_arguments_cannot_delete_by_them(
    console_store: Store, person: Callable[..., Client], db: None
) -> None:
    filler = Filler(console_store)
    filler.make(State.DEAD, call=[[4242], {}])
    client = person("view_jobs", "delete_jobs")
    client.post(f"{BASE}jobs/dead/?q=4242", {"verb": "delete", "scope": "all", "confirmed": "1"})
    (operation,) = bulk.operations_list()
    assert operation.match.arguments is False
    assert operation.moved == 0


@override_settings(DJANGO_JOBS={"STORE": "memory"})
def test_an_older_worker_can_read_a_search_of_arguments(console_store: Store) -> None:
    use_store(console_store)
    operation = bulk.start("delete", State.DEAD, bulk.Match(text="x"))
    document = console_store.get_document("bulk")
    assert "arguments" not in json.dumps(document[operation.id])
    assert bulk.get(operation.id) == operation
