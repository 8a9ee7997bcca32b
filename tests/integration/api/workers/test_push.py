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
from django.core.cache import cache
from django.core.cache.backends.dummy import DummyCache

from django_jobs import remote
from django_jobs.api.common.schemas import Extension
from django_jobs.api.endpoints import work
from django_jobs.core.values import State
from django_jobs.execution.remote_reports import RemoteWatch
from django_jobs.models import RemoteJobType
from django_jobs.remote import posting, push
from django_jobs.runtime import per_minute
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


def test_an_extension_that_is_quicker_than_the_answer_keeps_its_lease(
    api: Api, store: Store, clock: Clock, receiver: Receiver, work_off: Callable[..., int]
) -> None:
    answers: list[dict[str, Any]] = []

    def extend(body: dict[str, Any]) -> None:
        info = store.get("push", body["id"])
        assert info is not None
        with pytest.MonkeyPatch.context() as patched:  # the row is known: this thread has another database
            patched.setattr(work, "look", lambda id, **_: (info, False))
            answers.append(work.prolong("node.mail", "1", Extension(token=body["token"], lease=3600)))

    receiver.then = extend
    api.put("v1/jobs/node.mail/1")
    work_off("push")
    assert answers == [{"lease": 3600, "stop": False}]
    clock.advance(900_000)
    assert RemoteWatch(store, lambda: ["push"]).tick() == 0
    report = {"status": "succeeded", "token": receiver.got[0]["token"]}
    assert api.post("v1/jobs/node.mail/1", report).status_code == 200


@pytest.mark.accepts("K19")
def test_no_report_within_the_time_limit_fails_the_attempt_and_the_next_one_is_posted(
    api: Api, store: Store, clock: Clock, receiver: Receiver, work_off: Callable[..., int]
) -> None:
    api.put("v1/jobs/node.mail/1")
    work_off("push")
    watch = RemoteWatch(store, lambda: ["push"])
    clock.advance(299_500)
    assert (watch.tick(), store.recover("push")) == (0, [])
    clock.advance(501)  # less than what counts as a step of the clock
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


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_a_job_whose_post_was_not_answered_waits_for_its_report_as_an_accepted_one(
    api: Api, store: Store, clock: Clock, receiver: Receiver, work_off: Callable[..., int], delivery: str
) -> None:
    RemoteJobType.objects.update(delivery_strategy=delivery)
    remote.forget()
    receiver.statuses = [0]
    for id in "12":
        api.put(f"v1/jobs/node.mail/{id}")
    assert work_off("push") == 2
    assert [(got["id"], got["attempt"]) for got in receiver.got] == [("1", 1), ("2", 1)]
    assert store.stats(["push"])[0].counts["running"] == 2

    report = {"status": "succeeded", "attempt": 1, "token": receiver.got[0]["token"]}
    assert api.post("v1/jobs/node.mail/1", report).json()["state"] == "succeeded"
    clock.advance(300_001)
    assert RemoteWatch(store, lambda: ["push"]).tick() == 1
    assert api.get("v1/jobs/2").json()["state"] == ("dead" if delivery == "at_most_once" else "retry")


def test_410_pauses_the_job_type_and_costs_no_attempt(
    api: Api, store: Store, clock: Clock, receiver: Receiver, work_off: Callable[..., int]
) -> None:
    receiver.statuses = [410]
    api.put("v1/jobs/node.mail/1")
    work_off("push")
    (alarm,) = [each for each in api.get("v1/alarms").json()["alarms"] if each["kind"] == "type_paused"]
    assert (alarm["queue"], "node.mail" in alarm["text"], "410" in alarm["reason"]) == ("push", True, True)
    clock.advance(3_600_000)
    assert work_off("push") == 0

    receiver.statuses = [202]
    api.post("v1/queues/push/resume", {"job": "node.mail"})
    work_off("push")
    assert [got["attempt"] for got in receiver.got] == [1, 1]
    assert store.get("push", "1").worker == "remote:1"  # type: ignore[union-attr]


class TestRequestsPerMinute:
    @pytest.fixture(autouse=True)
    def minute(self, monkeypatch: pytest.MonkeyPatch, settings: Any, clock: Clock) -> None:
        """The minutes are those of the store's clock, 15 s after one began."""
        settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
        cache.clear()
        clock.now += 15_000 - clock.now % 60_000
        monkeypatch.setattr(per_minute.time, "time", lambda: clock.now / 1000)

    def limit(self, api: Api, number: int | None) -> None:
        changed = api("PATCH", "v1/job-types/node.mail", {"per_minute": number})
        assert (changed.status_code, changed.json()["per_minute"]) == (200, number)

    @pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
    def test_jobs_beyond_wait_without_an_attempt_and_come_spread_over_the_next_minutes(
        self, api: Api, store: Store, clock: Clock, receiver: Receiver, work_off: Callable[..., int], delivery: str
    ) -> None:
        RemoteJobType.objects.update(delivery_strategy=delivery)
        self.limit(api, 2)
        for id in "12345":
            api.put(f"v1/jobs/node.mail/{id}")
        assert work_off("push") == 5
        assert len(receiver.got) == 2
        waiting, _ = store.listed(["push"], State.SCHEDULED, 10)
        assert sorted(info.at - clock.now for info in waiting) == [45_000, 75_000, 105_000]
        assert {info.failures for info in waiting} == {0}
        for seconds, posted in ((45, 3), (30, 4), (30, 5)):
            clock.advance(seconds * 1000)
            work_off("push")
            assert len(receiver.got) == posted
        assert [got["attempt"] for got in receiver.got] == [1] * 5

    def test_tries_count_and_a_job_that_has_none_left_waits(
        self, api: Api, store: Store, receiver: Receiver, work_off: Callable[..., int], pauses: list[float]
    ) -> None:
        self.limit(api, 3)
        receiver.statuses = [503]
        api.put("v1/jobs/node.mail/1")
        work_off("push")
        assert (len(receiver.got), store.get("push", "1").state) == (3, State.SCHEDULED)  # type: ignore[union-attr]

    def test_without_a_limit_and_without_a_cache_none_waits(
        self, api: Api, monkeypatch: pytest.MonkeyPatch, receiver: Receiver, work_off: Callable[..., int]
    ) -> None:
        monkeypatch.setattr(per_minute, "cache", DummyCache("", {}))
        for limit, id in ((None, "1"), (1, "2"), (1, "3")):
            self.limit(api, limit)
            api.put(f"v1/jobs/node.mail/{id}")
            work_off("push")
        assert len(receiver.got) == 3

    def test_a_limit_is_one_at_least_and_null_takes_it_away(self, api: Api) -> None:
        for odd in (0, -1, 1.5, "7", True, 10**7):
            assert api("PATCH", "v1/job-types/node.mail", {"per_minute": odd}).status_code == 422
        self.limit(api, 7)
        self.limit(api, None)
        made = api.post("v1/job-types", {"name": "node.new", "queue": "push", "per_minute": 5})
        assert (made.status_code, made.json()["per_minute"]) == (201, 5)


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
        with pytest.raises(posting.NotAnswered):
            posting.post(f"http://localhost:{server.getsockname()[1]}/", b"{}", {}, ["localhost"])
        thread.join(60)
        assert not thread.is_alive()


def test_what_a_server_says_before_its_answer_is_not_the_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                asked = b""
                while not asked.endswith(b"{}"):  # who closes with more to read resets the connection
                    asked += connection.recv(65_536)
                for line in ("102 Processing", "103 Early Hints\r\nLink: </a>", "202 Accepted\r\nContent-Length: 0"):
                    connection.sendall(f"HTTP/1.1 {line}\r\n\r\n".encode())

        thread = Thread(target=answer)
        thread.start()
        url = f"http://localhost:{server.getsockname()[1]}/"
        assert posting.post(url, b"{}", {}, ["localhost"]) == posting.Answer(202)
        thread.join(60)


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
