"""A job type that was renamed: programs may go on with its old name, and a call by either name is the same call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from django_jobs import job
from django_jobs.core import registry
from django_jobs.stores.redis import Store
from tests.integration.api.conftest import SETTINGS, Api
from tests.support import kept


@job(name="tests.parcel", aliases=["tests.packet"], api=True)
def parcel(number: int = 0) -> None: ...


registry.unregister(parcel.name)


@job(name="tests.packet", api=True)
def packet(number: int = 0) -> None: ...


registry.unregister(packet.name)
NAMES = ["tests.packet", "tests.parcel"]


@contextmanager
def before_the_rename() -> Iterator[None]:
    """The code knows the type by its old name only."""
    registry.unregister(parcel.name)
    registry.register(packet)
    try:
        yield
    finally:
        registry.unregister(packet.name)
        registry.register(parcel)


@pytest.fixture(autouse=True)
def offered(_api: None) -> Iterator[None]:
    registry.register(parcel)
    yield
    registry.unregister(parcel.name)


@pytest.mark.parametrize("again", NAMES)
@pytest.mark.parametrize("first", NAMES)
class TestACallThatIsSentAgain:
    def test_makes_one_job(self, api: Api, first: str, again: str) -> None:
        assert api.put(f"v1/jobs/{first}/1", {"data": [7]}).status_code == 201
        assert api.put(f"v1/jobs/{again}/1", {"data": [7]}).status_code == 200
        assert api.put(f"v1/jobs/{again}/1", {"data": [8]}).status_code == 409

    def test_makes_one_job_in_a_call_for_many(self, api: Api, first: str, again: str) -> None:
        for name, status in ((first, 201), (again, 200)):
            answer = api.post("v1/jobs", {"jobs": [{"name": name, "id": "1", "data": [7]}]})
            assert [each["status"] for each in answer.json()["jobs"]] == [status]

    def test_makes_one_job_also_when_that_has_left_the_history(
        self, api: Api, store: Store, first: str, again: str, work_off: Callable[..., int]
    ) -> None:
        api.put(f"v1/jobs/{first}/1", {"data": [7]})
        work_off()
        store.delete("default", ["1"])
        assert api.put(f"v1/jobs/{again}/1", {"data": [7]}).json()["state"] == "succeeded"

    def test_makes_one_replay(self, api: Api, first: str, again: str, work_off: Callable[..., int]) -> None:
        api.put("v1/jobs/tests.parcel/1")
        work_off()
        answers = [
            api("POST", f"v1/jobs/{name}/1/replay", **{"Idempotency-Key": "k"}).json()["id"] for name in (first, again)
        ]
        assert answers[0] == answers[1]


@pytest.mark.parametrize("name", NAMES)
def test_the_type_is_found_by_each_of_its_names(api: Api, name: str) -> None:
    assert api.get(f"v1/job-types/{name}").json()["name"] == "tests.parcel"


def test_a_job_that_was_enqueued_before_the_rename_is_the_same_after_it(api: Api) -> None:
    with before_the_rename():
        assert api.put("v1/jobs/tests.packet/1", {"data": [7]}).status_code == 201
    assert [api.put(f"v1/jobs/{name}/1", {"data": [7]}).status_code for name in NAMES] == [200, 200]


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_of_the_outbox_is_seen_by_a_token_for_either_name(api: Api, settings: Any, name: str) -> None:
    settings.DJANGO_JOBS = {**SETTINGS, "OUTBOX": True}
    with before_the_rename():
        entry = kept.entry(packet.enqueue(7))
    assert [each["id"] for each in Api("read", jobs=(name,)).get("v1/outbox").json()["entries"]] == [entry]
