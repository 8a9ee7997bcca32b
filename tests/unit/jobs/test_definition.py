"""`@job` refuses at import what could not work later, and says what to do."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import InvalidArguments, InvalidJob, JobContext, UnknownJob, job
from django_jobs.core import registry
from django_jobs.core.sensitive import HIDDEN
from django_jobs.core.values import DEFAULT_OPTIONS, PLAIN, Controls, Options


def plain(order_id: int, copy: bool = False) -> str:
    """Says what it got."""
    return f"{order_id} {copy}"


def with_context(ctx: JobContext, order_id: int) -> None: ...


def without_parameters() -> None: ...


def keyword_only(*, ctx: Any) -> None: ...


async def coroutine(order_id: int) -> int:
    return order_id


def generator() -> Iterator[int]:
    yield 1


class Shop:
    def method(self) -> None: ...


class TestTheDecorator:
    def test_a_job_is_still_the_function_it_was(self) -> None:
        task = job(plain)
        assert task(7, copy=True) == "7 True"
        assert (task.name, task.__doc__, task.__name__) == (f"{__name__}.plain", "Says what it got.", "plain")
        assert inspect.signature(task) == inspect.signature(plain)

    @pytest.mark.accepts("G18")
    def test_it_is_found_by_its_name_and_by_older_names(self) -> None:
        task = job(name="shop.receipt", aliases=["shop.mail"])(plain)
        assert registry.get("shop.receipt") is task
        assert registry.get("shop.mail") is task
        assert "shop.receipt" in registry.names()
        assert "shop.mail" not in registry.names()

    def test_an_unknown_name_is_answered_with_the_nearest(self) -> None:
        job(name="shop.receipt")(plain)
        with pytest.raises(UnknownJob, match=r"No job is named 'shop\.receit'\. Did you mean 'shop\.receipt'\?"):
            registry.get("shop.receit")

    @pytest.mark.timed
    def test_a_list_looks_for_an_unknown_name_in_a_fraction_of_the_time_of_a_suggestion(self) -> None:
        for n in range(100):
            job(name=f"shop.receipt{n}")(plain)
        began = time.process_time()
        assert [registry.find("shop.receit") for _ in range(20)] == [None] * 20
        looked = time.process_time()
        for _ in range(20):
            with pytest.raises(UnknownJob):
                registry.get("shop.receit")
        assert 10 * (looked - began) < time.process_time() - looked

    @pytest.mark.accepts("G71")
    def test_the_defaults_are_those_of_the_reference(self) -> None:
        task = job(plain)
        assert (task.queue, task.priority, task.max_attempts, task.timeout, task.unique) == (
            "default",
            0,
            10,
            None,
            None,
        )
        assert task.stored_options is DEFAULT_OPTIONS
        assert task.stored_controls is PLAIN

    def test_durations_become_milliseconds_for_the_store(self) -> None:
        task = job(timeout=1.5, keep_result=timedelta(hours=1), priority=5)(plain)
        assert task.stored_options == Options(timeout=1500)
        assert task.stored_controls == Controls(priority=5, alone=True, keep_result=3_600_000)

    def test_at_most_once_means_one_attempt(self) -> None:
        task = job(delivery="at_most_once")(plain)
        assert task.max_attempts == 1
        assert task.stored_options.max_attempts == 1
        assert task.stored_controls.at_most_once

    def test_once_unless_failed_means_several_attempts_of_a_job_that_is_delivered_at_most_once(self) -> None:
        task = job(delivery="once_unless_failed", max_attempts=3)(plain)
        assert task.stored_options == Options(max_attempts=3, retried=True)
        assert task.stored_controls.at_most_once

    def test_an_async_function_is_known_as_one(self) -> None:
        assert job(coroutine).is_async
        assert not job(plain).is_async

    def test_the_same_function_may_be_defined_again(self) -> None:
        job(plain)
        again = job(plain)
        assert registry.get(again.name) is again


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"quue": "mail"}, "unknown option 'quue'. Did you mean 'queue'?"),
            ({"nonsense": 1}, "unknown option 'nonsense'. Known options: "),
            ({"queue": ""}, "queue='': use text"),
            ({"queue": 3}, "queue=3: use text"),
            ({"priority": 101}, "priority=101: use a whole number from -100 to 100"),
            ({"priority": True}, "priority=True: use a whole number"),
            ({"priority": 1.0}, "priority=1.0: use a whole number"),
            ({"max_attempts": 0}, "max_attempts=0: use a whole number from 1"),
            ({"backoff": "fast"}, "backoff='fast': use a list of seconds"),
            ({"backoff": []}, "backoff=[]: use a list of seconds"),
            ({"backoff": [-1]}, "backoff=[-1]: use a duration from 0 s"),
            ({"retry_on": "ValueError"}, "retry_on='ValueError': use a tuple of exception classes"),
            ({"discard_on": (int,)}, "use a tuple of exception classes"),
            ({"retry_on": KeyboardInterrupt}, "use a tuple of exception classes"),
            ({"on_exhausted": "drop"}, "on_exhausted='drop': use one of 'dead', 'discard'"),
            ({"timeout": 0.005}, "timeout=0.005: use a duration from 0.01 s"),
            ({"timeout": 0}, "timeout=0: use a duration from 0.01 s"),
            ({"timeout": "30"}, "timeout='30': use seconds (a number) or a timedelta"),
            ({"timeout": float("nan")}, "use a duration"),
            ({"expires_in": 0.0001}, "expires_in=0.0001: use a duration from 0.001 s"),
            ({"expires_in": timedelta(microseconds=1)}, "use a duration from 0.001 s"),
            ({"keep_result": -1}, "keep_result=-1: use a duration"),
            ({"delivery": "once"}, "delivery='once': use one of 'at_least_once', 'at_most_once', 'once_unless_failed'"),
            ({"delivery": "at_most_once", "max_attempts": 3}, "max_attempts=3 contradicts delivery='at_most_once'"),
            ({"max_concurrency": -1}, "max_concurrency=-1: use a whole number from 0"),
            ({"concurrency_key": 3}, "concurrency_key=3: use the name of a parameter"),
            ({"concurrency_key": "customer"}, "concurrency_key names 'customer'. The parameters are"),
            ({"unique": "always"}, "unique='always': use one of 'queued', 'running', 'success', or a timedelta"),
            ({"unique": True}, "unique=True: use one of"),
            ({"unique": timedelta(microseconds=10)}, "use a duration from 0.001 s"),
            ({"unique_on": "order_id"}, "unique_on='order_id': use a list of parameter names"),
            ({"unique_on": ["customer"]}, "unique_on names 'customer'. The parameters are: order_id, copy"),
            ({"on_conflict": "merge"}, "on_conflict='merge': use one of 'skip', 'replace', 'debounce', 'raise'"),
            ({"sensitive": ["token"]}, "sensitive names 'token'. The parameters are"),
            ({"api": "yes"}, "api='yes': use True or False"),
            ({"takes_context": 1}, "takes_context=1: use True or False"),
            ({"on_missing": "ignore"}, "on_missing='ignore': use one of 'fail', 'discard'"),
            ({"cron": ""}, "cron='': use text"),
            ({"nmae": "shop.receipt"}, "unknown option 'nmae'. Did you mean 'name'?"),
            ({"name": "two words"}, "the name 'two words' cannot be used"),
            ({"name": "line\nbreak"}, "cannot be used"),
            ({"name": ""}, "the name '' cannot be used"),
            ({"name": "x" * 201}, "cannot be used"),
            ({"aliases": "old"}, "aliases='old': use a list of names"),
            ({"aliases": ["a b"]}, "the name 'a b' cannot be used"),
        ],
        ids=str,
    )
    @pytest.mark.accepts("G82")
    def test_a_bad_option_is_named_with_its_remedy(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidJob) as caught:
            job(**options)(plain)
        assert message in str(caught.value)
        assert "plain" in str(caught.value)

    def test_two_functions_cannot_have_one_name(self) -> None:
        job(name="shop.receipt")(plain)
        with pytest.raises(InvalidJob, match=r"Two jobs are named 'shop\.receipt': .*plain and .*coroutine"):
            job(name="shop.receipt")(coroutine)
        with pytest.raises(InvalidJob, match="Two jobs are named"):
            job(name="shop.other", aliases=["shop.receipt"])(coroutine)

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda: None, "is a lambda. Write a `def`"),
            (Shop.method, "is nested in a function or class"),
            (Shop().method, "use it on a function"),
            (Shop, "use it on a function"),
            (len, "use it on a function"),
            (7, "use it on a function"),
            ("mail", "@job('mail'): options are given by name, as in @job(queue='mail')"),
            (generator, "is a generator: calling it runs nothing"),
        ],
    )
    @pytest.mark.accepts("G82")
    def test_what_a_worker_cannot_find_or_run_is_no_job(self, function: Any, message: str) -> None:
        with pytest.raises(InvalidJob) as caught:
            job(function)
        assert message in str(caught.value)

    def test_a_nested_function_is_no_job(self) -> None:
        def inner() -> None: ...

        with pytest.raises(InvalidJob, match=r"Move it to the top level of a module.* functools\.wraps"):
            job(inner)

    @pytest.mark.parametrize("function", [without_parameters, keyword_only])
    def test_a_context_needs_a_first_parameter(self, function: Any) -> None:
        with pytest.raises(InvalidJob, match="takes_context=True needs a first parameter"):
            job(takes_context=True)(function)

    def test_a_job_cannot_be_made_of_a_job(self) -> None:
        with pytest.raises(InvalidJob, match="is a job already"):
            job(job(plain))


class TestArguments:
    def test_a_wrong_call_is_found_where_it_is_made(self) -> None:
        task = job(plain)
        for args, kwargs in [((), {}), ((1, 2, 3), {}), ((1,), {"order_id": 2}), ((), {"id": 1})]:
            with pytest.raises(InvalidArguments, match=r"plain\(order_id: .* cannot be called like this: "):
                task.check_call(args, kwargs)
        task.check_call((1,), {})
        task.check_call((), {"order_id": 1, "copy": True})

    def test_the_context_is_not_among_the_arguments(self) -> None:
        task = job(takes_context=True)(with_context)
        assert task.bind((7,), {}).arguments == {"order_id": 7}

    def test_sensitive_arguments_are_hidden_however_they_are_passed(self) -> None:
        task = job(sensitive=["order_id"])(plain)
        assert task.hide((7, True), {}) == ([HIDDEN, True], {})
        assert task.hide((), {"order_id": 7, "copy": True}) == ([], {"order_id": HIDDEN, "copy": True})


class TestJobDefaults:
    def test_the_project_sets_defaults_for_what_a_job_does_not_say(self) -> None:
        task, own = job(plain), job(name="own", max_attempts=2)(plain)
        with override_settings(DJANGO_JOBS={"STORE": "memory", "JOB_DEFAULTS": {"max_attempts": 4, "timeout": 60}}):
            assert (task.max_attempts, task.timeout, own.max_attempts, own.timeout) == (4, 60.0, 2, 60.0)
            assert task.stored_options == Options(max_attempts=4, timeout=60_000)
        assert (task.max_attempts, task.timeout) == (10, None)

    def test_a_default_that_is_no_option_is_refused(self) -> None:
        task = job(plain)
        with (
            override_settings(DJANGO_JOBS={"STORE": "memory", "JOB_DEFAULTS": {"atempts": 4}}),
            pytest.raises(InvalidJob, match=r"JOB_DEFAULTS.*unknown option 'atempts'"),
        ):
            _ = task.max_attempts
