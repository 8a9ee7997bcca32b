"""Push jobs: posted to a URL, then left alone until the report."""

from __future__ import annotations

import os
import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from django_jobs import remote
from django_jobs.core.values import State
from django_jobs.execution.remote_reports import RemoteWatch
from django_jobs.models import RemoteJobType
from django_jobs.remote import posting, push
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.api.conftest import Api
from tests.integration.api.receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, which are noted instead of made."""
    made: list[float] = []
    monkeypatch.setattr(push, "sleep", made.append)
    return made


@pytest.fixture
def kind(store: Store, receiver: Receiver) -> RemoteJobType:
    row = RemoteJobType(name="node.mail", queue="push", url=receiver.url, credentials="shop", attempts=3)
    row.full_clean()
    row.save()
    remote.forget()
    return row


@pytest.fixture
def api(kind: RemoteJobType) -> Api:
    return Api("enqueue", "read", "manage", "work")


@pytest.mark.accepts("K17", "K18")
def test_a_job_is_posted_with_credentials_accepted_and_ended_by_its_report(
    api: Api, store: Store, receiver: Receiver, work_off: Callable[..., int]
) -> None:
    api.put("v1/jobs/node.mail/1", {"data": {"$to": ["ada@example.com"]}})
    assert work_off("push") == 1

    (got,) = receiver.got
    info = store.get("push", "1")
    assert info is not None
    assert got == {
        "id": "1",
        "name": "node.mail",
        "data": {"$to": ["ada@example.com"]},
        "attempt": 1,
        "token": info.token,
        "meta": None,
        "tags": [],
    }
    assert receiver.seen[0]["Authorization"] == "Basic " + b64encode("jobs:pässword".encode()).decode()
    assert receiver.seen[0]["Content-Type"] == "application/json"
    assert receiver.seen[0]["Host"] == f"localhost:{receiver.port}"
    assert (info.state, info.worker) == (State.RUNNING, "remote:1")

    report = {"status": "succeeded", "attempt": got["attempt"], "token": got["token"], "result": "sent"}
    assert api.post("v1/jobs/node.mail/1", report).json()["state"] == "succeeded"
    assert api.get("v1/jobs/1").json()["result"] == "sent"


def test_a_report_that_is_quicker_than_the_answer_counts(
    api: Api, store: Store, receiver: Receiver, work_off: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_jobs.core.values import Claim
    from django_jobs.execution.remote_reports import succeed

    def report(body: dict[str, Any]) -> None:
        info = store.get("push", body["id"])
        assert info is not None
        succeed(store, Claim(body["id"], "push", body["token"], info.record, claimed_at=info.at), "at once")

    receiver.then = report
    api.put("v1/jobs/node.mail/1")
    work_off("push")
    assert api.get("v1/jobs/1").json()["result"] == "at once"


@pytest.mark.accepts("K19")
def test_no_report_within_the_time_limit_fails_the_attempt_and_the_next_one_is_posted(
    api: Api, store: Store, clock: Clock, receiver: Receiver, work_off: Callable[..., int]
) -> None:
    api.put("v1/jobs/node.mail/1")
    work_off("push")
    watch = RemoteWatch(store, lambda: ["push"])
    clock.advance(299_000)
    assert (watch.tick(), store.recover("push")) == (0, [])
    clock.advance(1_001)
    assert watch.tick() == 1
    clock.advance(60_000)
    work_off("push")
    assert [got["attempt"] for got in receiver.got] == [1, 2]
    assert receiver.got[1]["token"] > receiver.got[0]["token"]
    late = {"status": "succeeded", "attempt": 1, "token": receiver.got[0]["token"]}
    assert api.post("v1/jobs/node.mail/1", late).status_code == 409


def test_503_is_tried_three_more_times_with_growing_pauses(
    api: Api, store: Store, receiver: Receiver, work_off: Callable[..., int], pauses: list[float]
) -> None:
    receiver.statuses = [503, 503, 503, 202]
    api.put("v1/jobs/node.mail/1")
    work_off("push")
    assert store.get("push", "1").worker == "remote:1"  # type: ignore[union-attr]
    assert pauses == sorted(pauses)
    assert len(pauses) == 3
    assert sum(pauses) <= 1.0

    receiver.statuses = [503]
    receiver.got.clear()
    api.put("v1/jobs/node.mail/2")
    work_off("push")
    assert len(receiver.got) == 4
    assert api.get("v1/jobs/2").json()["state"] == "retry"
    assert "503" in api.get("v1/jobs/2").json()["error"]


@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 404, 500])
def test_any_other_answer_is_a_failed_attempt_and_no_redirect_is_followed(
    api: Api, store: Store, receiver: Receiver, work_off: Callable[..., int], status: int
) -> None:
    receiver.statuses, receiver.headers = [status], {"Location": receiver.url}
    api.put("v1/jobs/node.mail/1")
    work_off("push")
    assert len(receiver.got) == 1
    assert api.get("v1/jobs/1").json()["state"] == "retry"


def test_a_worker_that_is_down_fails_the_attempt(
    api: Api, kind: RemoteJobType, work_off: Callable[..., int], pauses: list[float]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        RemoteJobType.objects.update(url=f"http://localhost:{free.getsockname()[1]}/")
        remote.forget()
        api.put("v1/jobs/node.mail/1")
        work_off("push")
    assert api.get("v1/jobs/1").json()["state"] == "retry"
    assert len(pauses) == 3


def test_a_private_address_is_never_posted_to_unless_its_host_is_named(
    api: Api, settings: Any, store: Store, receiver: Receiver, work_off: Callable[..., int]
) -> None:
    RemoteJobType.objects.update(url=f"https://127.0.0.1:{receiver.port}/")
    remote.forget()
    api.put("v1/jobs/node.mail/1")
    work_off("push")
    assert receiver.got == []
    assert "not a public address" in api.get("v1/jobs/1").json()["error"]


def test_the_address_that_was_checked_is_the_one_that_is_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = socket.getaddrinfo, []

    def once(host: str, *args: Any, **kwargs: Any) -> Any:
        asked.append(host)
        return real("127.0.0.1", *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", once)
    url = f"http://worker.internal:{receiver.port}/x"
    assert posting.post(url, b"{}", {}, ["worker.internal"]).status == 202
    assert asked[0] == "worker.internal"
    assert set(asked[1:]) <= {"127.0.0.1"}
    assert receiver.seen[0]["Host"] == f"worker.internal:{receiver.port}"


def test_a_server_that_drips_its_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "TIME_LIMIT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    connection.recv(65_536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\n")
                    while True:
                        connection.sendall(b"X")
                        connection.settimeout(0.05)
                        try:
                            if not connection.recv(1):
                                return
                        except TimeoutError:
                            continue
                except OSError:
                    return

        thread = Thread(target=drip)
        thread.start()
        with pytest.raises(TimeoutError):
            posting.post(f"http://localhost:{server.getsockname()[1]}/", b"{}", {}, ["localhost"])
        thread.join(60)
        assert not thread.is_alive()


def ours() -> int:
    """Threads that are not the receiver's."""
    return sum("process_request" not in thread.name for thread in threading.enumerate())


def resident_mb() -> float:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_waiting_for_reports_holds_neither_thread_nor_claim_of_a_worker(
    api: Api, store: Store, work_off: Callable[..., int]
) -> None:
    before, memory = ours(), resident_mb()
    for number in range(300):
        api.put(f"v1/jobs/node.mail/{number}", {"data": number})
    assert work_off("push") == 300
    assert ours() <= before
    assert resident_mb() - memory < 30
    assert store.stats(["push"])[0].counts["running"] == 300
    assert store.extend("push", ["worker"], 30_000) == {} or not any(store.extend("push", ["worker"], 30_000).values())
    assert store.recover("push", worker="worker") == []
