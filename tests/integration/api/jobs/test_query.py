"""A query over HTTP: exact on arguments, of live and archived jobs, and what cannot be read is the caller's mistake."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from django_jobs import archive, operations
from django_jobs.core.values import State
from django_jobs.stores.redis import Store
from tests.integration.api.conftest import Api

HERS = quote('arg.name="Ada"')


@pytest.fixture
def waiting(api: Api, store: Store) -> list[str]:
    """Jobs that greet Ada, Adam and, in a text, Ada."""
    for id, name in (("1", "Ada"), ("2", "Adam"), ("3", "not Ada"), ("4", "Ada")):
        api.put(f"v1/jobs/tests.greet/{id}", {"data": [name]})
    return ["1", "4"]


def ids(page: dict[str, list[dict[str, str]]]) -> list[str]:
    return sorted(job["id"] for job in page["jobs"])


def test_jobs_are_listed_by_an_argument_exactly(api: Api, waiting: list[str]) -> None:
    page = api.get(f"v1/jobs?state=queued&query={HERS}").json()
    assert (ids(page), page["checked"], page["notes"]) == (waiting, 4, [])
    assert ids(api.get(f"v1/jobs?state=queued&query={HERS}%20id:4").json()) == ["4"]
    assert ids(api.get(f"v1/jobs?state=queued&query={HERS}%20id:2").json()) == []
    assert ids(api.get(f"v1/jobs?state=queued&query={HERS}&tag=vip").json()) == []
    unknown = api.get("v1/jobs?state=queued&query=arg.nam=1").json()
    assert (unknown["jobs"], unknown["notes"]) == ([], ["No job that was checked has arg.nam."])
    assert "checked" not in api.get("v1/jobs?state=queued").json()


def test_jobs_of_a_queue_that_cannot_be_counted_are_listed(api: Api, waiting: list[str], store: Store) -> None:
    key = store.keys.of("default")["totals"]
    store.transport.command("DEL", key)
    store.transport.command("SET", key, "junk")
    assert ids(api.get(f"v1/jobs?state=queued&query={HERS}").json()) == waiting


def test_archived_jobs_are_listed_by_the_same_query(api: Api, waiting: list[str], store: Store) -> None:
    store.cancel("default", ["1", "2", "3", "4"])
    infos, _ = store.listed(["default"], State.CANCELLED, 10)
    archive.write(infos)
    page = api.get(f"v1/archived-jobs?query={HERS}").json()
    assert (ids(page), page["checked"]) == (waiting, 4)
    first = api.get(f"v1/archived-jobs?query={HERS}&limit=1").json()
    second = api.get(f"v1/archived-jobs?query={HERS}&limit=1&cursor={first['cursor']}").json()
    assert sorted(ids(first) + ids(second)) == waiting
    assert ids(api.get(f"v1/archived-jobs?query={HERS}%20state:dead").json()) == []


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("v1/jobs?state=queued&query=customer:42", "At character 1 of the query: There is no field 'customer'."),
        ("v1/jobs?state=queued&query=state:dead", "Leave out state:dead"),
        ("v1/archived-jobs?query=before:then", "is not a time"),
    ],
)
def test_a_query_that_cannot_be_read_is_refused_with_its_place(api: Api, path: str, why: str) -> None:
    answer = api.get(path)
    assert answer.status_code == 422
    assert why in answer.json()["detail"]


def test_a_token_for_some_types_finds_only_those(api: Api, waiting: list[str]) -> None:
    limited = Api("read", jobs=("tests.pay",))
    page = limited.get(f"v1/jobs?state=queued&query={HERS}").json()
    assert (page["jobs"], page["checked"]) == ([], 0)


def test_what_is_paused_is_listed_for_who_may_see_all_types(api: Api, waiting: list[str]) -> None:
    operations.pause("default", reason="moving", by="ann")
    (paused,) = api.get("v1/paused").json()
    assert (paused["kind"], paused["name"], paused["by"], paused["reason"], paused["waiting"]) == (
        "queue", "default", "ann", "moving", 4
    )  # fmt: skip
    assert Api("read", jobs=("tests.greet",)).get("v1/paused").status_code == 403
