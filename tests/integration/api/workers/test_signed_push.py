"""Posted jobs are signed, and a receiver that asks to wait costs no attempt."""

from __future__ import annotations

import hmac
import ssl
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from hashlib import sha256
from time import time
from typing import Any

import pytest

from django_jobs import remote
from django_jobs.conf import values
from django_jobs.core.values import State
from django_jobs.models import RemoteJobType
from django_jobs.remote import posting, push
from django_jobs.remote.posting import seconds_of
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.api.conftest import SETTINGS, Api
from tests.integration.api.receiver import Receiver, receiving

OLD, NEW = (f"whsec_{b64encode(bytes([n]) * 24).decode()}" for n in (1, 2))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def api(store: Store, receiver: Receiver, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setattr(push, "sleep", lambda seconds: None)
    credentials = {"shop": {"token": "t", "secrets": [OLD, NEW]}, "plain": {"secrets": [NEW]}}
    settings.DJANGO_JOBS = {**SETTINGS, "API": {**SETTINGS["API"], "CREDENTIALS": credentials}}
    use_store(store)
    RemoteJobType.objects.create(name="node.mail", queue="push", url=receiver.url, credentials="shop", attempts=2)
    remote.forget()
    return Api("enqueue", "read", "manage", "work")


def verified(receiver: Receiver, n: int, secret: str) -> bool:
    """As the specification says: is one of the signatures ours?"""
    headers, body = receiver.seen[n], receiver.bodies[n]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = b64encode(hmac.digest(b64decode(secret.removeprefix("whsec_")), signed, sha256)).decode()
    assert abs(int(headers["webhook-timestamp"]) - time()) < 300
    return f"v1,{wanted}" in headers["webhook-signature"].split(" ")


def test_every_secret_signs_and_a_third_one_does_not(
    api: Api, receiver: Receiver, work_off: Callable[..., int]
) -> None:
    api.put("v1/jobs/node.mail/1", {"data": {"to": "ä"}})
    work_off("push")
    assert receiver.seen[0]["Authorization"] == "Bearer t"
    assert verified(receiver, 0, OLD)
    assert verified(receiver, 0, NEW)
    assert not verified(receiver, 0, f"whsec_{b64encode(b'3' * 24).decode()}")
    receiver.bodies[0] = receiver.bodies[0].replace(b"1", b"2", 1)
    assert not verified(receiver, 0, NEW)


def test_a_token_that_no_header_can_hold_is_refused_and_not_shown_to_those_who_see_the_job(
    api: Api, store: Store, receiver: Receiver, work_off: Callable[..., int], settings: Any
) -> None:
    """As it is read from a file that ends in a newline."""
    credentials = {"shop": {"token": "s3cret\n"}}
    settings.DJANGO_JOBS = {**SETTINGS, "API": {**SETTINGS["API"], "CREDENTIALS": credentials}}
    use_store(store)
    api.put("v1/jobs/node.mail/1", {"data": 1})
    work_off("push")
    job = api.get("v1/jobs/1")
    assert (receiver.seen, job.json()["state"]) == ([], "retry")
    assert "strip it" in job.json()["error"]
    assert "s3cret" not in job.content.decode()
    assert "s3cret" not in store.get("push", "1").attempts[0].traceback  # type: ignore[union-attr]
    assert values.credentials(credentials)
    assert values.credentials({"shop": {"token": "s3cret"}}) is None


def test_the_library_of_standard_webhooks_verifies_it(
    api: Api, receiver: Receiver, work_off: Callable[..., int]
) -> None:
    library = pytest.importorskip("standardwebhooks")
    RemoteJobType.objects.update(credentials="plain")
    remote.forget()
    api.put("v1/jobs/node.mail/1", {"data": [1]})
    work_off("push")
    assert library.Webhook(NEW).verify(receiver.bodies[0], receiver.seen[0])["data"] == [1]
    assert "Authorization" not in receiver.seen[0]
    with pytest.raises(library.WebhookVerificationError):
        library.Webhook(OLD).verify(receiver.bodies[0], receiver.seen[0])


def test_the_id_of_a_delivery_stays_in_all_tries_of_an_attempt_and_is_new_for_the_next(
    api: Api, receiver: Receiver, clock: Clock, work_off: Callable[..., int]
) -> None:
    receiver.statuses = [503, 503, 429, 500, 202]
    api.put("v1/jobs/node.mail/1")
    for _ in range(3):
        work_off("push")
        clock.advance(3_600_000)
    assert [got["attempt"] for got in receiver.got] == [1, 1, 1, 1, 2]
    ids = [headers["webhook-id"] for headers in receiver.seen]
    assert len(set(ids[:4])) == 1
    assert ids[4] != ids[0]

    receiver.statuses = [202]
    for _ in range(2):
        api.post("v1/jobs/node.mail/1/kill")
        api.post("v1/jobs/node.mail/1/delete")
        api.put("v1/jobs/node.mail/1")
        clock.advance(3_600_000)
        work_off("push")
    again = [headers["webhook-id"] for headers in receiver.seen]
    assert len(set(again)) == len(again) - 3


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        (429, "120", 120),
        (429, None, 30),
        (503, "120", 120),
        (429, "9999999999", 3600),
        (429, "-1", 30),
        (429, "NaN", 30),
    ],
)
def test_a_receiver_that_asks_to_wait_costs_no_attempt(
    api: Api, store: Store, receiver: Receiver, clock: Clock, work_off: Callable[..., int], status: int,
    header: str | None, seconds: int, delivery: str,
) -> None:  # fmt: skip
    RemoteJobType.objects.update(delivery_strategy=delivery)
    remote.forget()
    receiver.statuses, receiver.headers = [status], {"Retry-After": header} if header else {}
    api.put("v1/jobs/node.mail/1")
    for tries in range(1, 5):
        work_off("push")
        assert len(receiver.got) == tries
        info = store.get("push", "1")
        assert info is not None
        assert (info.state, info.failures, info.at) == (State.SCHEDULED, 0, clock.now + seconds * 1000)
        clock.advance(seconds * 1000)
    receiver.statuses, receiver.headers = [202], {}
    work_off("push")
    assert receiver.got[-1]["attempt"] == 1
    assert store.get("push", "1").worker == "remote:1"  # type: ignore[union-attr]


def test_retry_after_is_a_number_or_a_date() -> None:
    in_a_minute = datetime.now(UTC) + timedelta(seconds=60)
    assert 55 < (seconds_of(format_datetime(in_a_minute, usegmt=True)) or 0) <= 60
    assert seconds_of(format_datetime(in_a_minute - timedelta(hours=1), usegmt=True)) is None
    huge = "9" * 30
    for text in (f"Mon, {huge} Jan 2026 00:00:00 GMT", f"Mon, 1 Jan 2026 00:00:00 +{huge}"):
        assert seconds_of(text) is None
    assert [seconds_of(text) for text in ("7", " 7 ", "", "soon", "-1", "1.5")] == [7, 7, None, None, None, None]


def test_certificates_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    posting.tls_context.cache_clear()
    made: list[ssl.SSLContext] = []
    create = ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda: made.append(create()) or made[-1])
    assert posting.tls_context() is posting.tls_context()
    assert len(made) == 1
    assert made[0].verify_mode is ssl.CERT_REQUIRED
    posting.tls_context.cache_clear()


@pytest.mark.parametrize("secrets", [[], "whsec_x", [""], ["whsec_dG9vIHNob3J0"], [7], None])
def test_secrets_that_cannot_sign_are_named_by_the_checks(secrets: Any) -> None:
    assert values.credentials({"shop": {"token": "t", "secrets": secrets}})
    assert values.credentials({"shop": {"secrets": [NEW]}}) is None
