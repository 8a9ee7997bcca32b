"""Tags: what `@job` and `using` take, and what they refuse; and what a record says of them to other versions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import InvalidArguments, InvalidJob, job
from django_jobs.core.values import Job
from django_jobs.enqueueing.request import encode as encode_request
from django_jobs.enqueueing.request import request_for
from django_jobs.serialization.record import decode, encode, tags_of

WRONG: list[tuple[Any, str]] = [
    ("billing", r"tags=\('billing',\)"),
    (42, "use a tuple or a list"),
    (("",), "a tag is empty"),
    ((42,), "42 is not text.*'customer:42'"),
    ((None,), "None is not text"),
    (("a b",), "'a b' cannot be used.*without spaces and commas"),
    (("a,b",), "'a,b' cannot be used"),
    (("a\n",), r"'a\\n' cannot be used"),
    (("a\x00",), "cannot be used"),
    (("ü",), "letters A to Z"),
    (("-a",), "the first a letter"),
    (("x" * 65,), "65 characters.*at most 64.*Shorten"),
    (tuple(f"t{n}" for n in range(9)), r"9 tags \(t0 t1.*at most 8.*Leave some out"),
]


def order(order_id: int = 0) -> None: ...


@pytest.mark.parametrize(("tags", "said"), WRONG)
def test_what_is_no_tag_is_refused_at_import_with_the_value_and_the_remedy(tags: Any, said: str) -> None:
    with pytest.raises(InvalidJob, match=f"(?s)test_tags.order: tags=.*{said}"):
        job(tags=tags)(order)


@pytest.mark.parametrize(("tags", "said"), WRONG)
def test_using_refuses_the_same(tags: Any, said: str) -> None:
    task = job(order)
    with pytest.raises(InvalidJob, match=rf"(?s)using\(\): tags=.*{said}"):
        task.using(tags=tags)


def test_using_adds_to_the_tags_of_the_job_each_once() -> None:
    task = job(tags=["billing", "nightly"])(order)
    assert task.tags == ("billing", "nightly")
    more = task.using(tags=("customer:42", "billing"))
    assert tags_of(sent(more)) == ("billing", "nightly", "customer:42")
    assert tags_of(sent(more.using(tags=["retry@2"]))) == ("billing", "nightly", "customer:42", "retry@2")
    assert tags_of(sent(task)) == ("billing", "nightly")
    assert tags_of(sent(task.using(priority=5))) == ("billing", "nightly")


def test_a_job_has_at_most_eight_in_all() -> None:
    task = job(tags=tuple(f"t{n}" for n in range(6)))(order)
    task.using(tags=("a", "b", "t0"))
    with pytest.raises(InvalidJob, match=r"using\(\): tags=\('a', 'b', 'c'\): these are 9 tags .*at most 8"):
        task.using(tags=("a", "b", "c"))
    with pytest.raises(InvalidJob, match="9 tags"):
        task.using(tags=("a", "b")).using(tags=("c",))


def test_a_project_may_give_all_its_jobs_a_tag() -> None:
    task, own = job(order), job(name="own", tags=("own",))(order)
    with override_settings(DJANGO_JOBS={"STORE": "memory", "JOB_DEFAULTS": {"tags": ["shop"]}}):
        assert task.tags == ("shop",)
        assert tags_of(sent(task.using(tags=("a",)))) == ("shop", "a")
        assert own.tags == ("own",)


def test_middleware_may_change_the_tags_but_not_to_words_that_are_none() -> None:
    task = job(tags=("a",))(order)
    assert tags_of(sent(task, tags=["tenant:7"])) == ("tenant:7",)
    with pytest.raises(InvalidArguments, match=r"test_tags.order: tags=.*'x y' cannot be used"):
        sent(task, tags=["x y"])


def test_a_job_without_tags_has_the_record_that_older_versions_wrote() -> None:
    assert encode(Job("a", "q", "shop.pay", b"[[],{}]", 7)) == b"-\nshop.pay\n\n\n7\n\n[[],{}]"
    assert sent(job(name="plain")(order)) == b"-\nplain\n\n\n0\n\n[[],{}]"


def test_an_option_that_this_version_does_not_know_is_kept() -> None:
    read = decode("a", "q", b'-\nshop.pay\n{"max_attempts":3,"tomorrow":{"a":1}}\n\n7\n\n[[],{}]')
    assert json.loads(read.options.more) == {"tomorrow": {"a": 1}}
    assert b'"tomorrow":{"a":1}' in encode(read._replace(args=b"[[1],{}]"))


@pytest.mark.parametrize("record", [b"", b"\xff", b"-\na\n{\n\n0\n\n", b'-\na\n{"tags":7}\n\n0\n\n[[],{}]'])
def test_a_record_that_cannot_be_read_has_no_tags(record: bytes) -> None:
    assert tags_of(record) == ()


def sent(task: Any, **fields: Any) -> bytes:
    """The record that this call would store."""
    request = request_for(task._definition, (), {})
    for name, value in {**task._overrides, **fields}.items():
        setattr(request, name, value)
    from django_jobs.conf import get_settings

    return encode_request(request, get_settings(), 0).record
