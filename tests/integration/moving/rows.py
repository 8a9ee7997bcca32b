"""Binds tests to the rows of a guide about moving from another queue: one test at least for each row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from django.core.management import load_command_class

from django_jobs import PREVIOUS, chain, group, job, schedules
from django_jobs.core.registry import digest
from django_jobs.execution.executor import Executor
from django_jobs.stores.redis import Store
from django_jobs.testing import Jobs
from tests.docs.pages import ROOT

F = TypeVar("F", bound=Callable[..., Any])


class Guide:
    """The first table of docs/howto/`page`, whose first heading is the name of the other system."""

    def __init__(self, page: str) -> None:
        self.page = ROOT / "docs" / "howto" / page
        #: the rows that tests show to be true on both systems.
        self.tested: set[str] = set()

    def row(self, theirs: str, ours: str) -> Callable[[F], F]:
        """Say that the test shows this row; both texts are those of the page."""
        self.tested.add(f"| {theirs} | {ours} |")
        return lambda test: test

    def rows(self) -> list[str]:
        """Return the lines of the table, without its heading."""
        lines = iter(self.page.read_text().splitlines())
        for line in lines:
            if line.startswith("|---|"):
                break
        found = []
        for line in lines:
            if not line.startswith("|"):
                break
            found.append(line)
        return found


def ours(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`@job` for a function inside a test, by the name moving.<function>."""

    def make(function: Callable[..., Any]) -> Any:
        function.__qualname__ = function.__name__  # no worker needs to find it
        return job(**{"name": f"moving.{function.__name__}", **options})(function)

    return make


def noting(seen: list[Any], **options: Any) -> Any:
    """A job that writes its argument down."""

    @ours(**options)
    def note(value: Any = None) -> Any:
        seen.append(value)
        return value

    return note


def fives(seconds: float) -> int:
    """A pause, as a multiple of five seconds: a busy machine measures it some time after it began."""
    return 5 * round(seconds / 5)


def runs(jobs: Jobs, ran: list[Any]) -> list[int]:
    """Run what waits until nothing does.  Return the pauses before each further attempt; `ran` grows with each."""
    waits: list[int] = []
    jobs.run_all()
    while jobs.enqueued():
        before, count = jobs.now_ms(), len(ran)
        jobs.run_due()
        assert len(ran) == count + 1
        waits.append(fives((jobs.now_ms() - before) / 1000))
    return waits


def about(moment: datetime | None, seconds: float) -> bool:
    """Whether a time is so many seconds from now; a naive one is in UTC."""
    assert moment is not None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return abs(aware - datetime.now(UTC) - timedelta(seconds=seconds)) < timedelta(seconds=30)


def next_run(name: str) -> datetime:
    """When a job with `cron=` is due next."""
    (found,) = schedules.next_runs(schedules.get_entry(name), 1)
    return found


def double(number: int) -> int:
    return 2 * number


def workflows_here(jobs: Jobs, seen: list[Any]) -> list[Any]:
    """Run a chain, and a group with a job that comes after it.  Return the results that were passed on."""
    seen.clear()
    step, end = ours()(double), noting(seen)
    chain(step.s(1), end.s(PREVIOUS)).enqueue()
    jobs.run_all()
    group(step.s(1), step.s(2)).then(end.s(PREVIOUS)).enqueue()
    jobs.run_all()
    return seen


def run_on(store: Store, **options: Any) -> None:
    """Run all that waits as a worker does, on a store that is in use; `options` are those of Executor."""
    while claims := store.claim("default", "w", 1, lease=30_000, knows=digest()).claims:
        Executor(middleware=(), **options).run(claims[0], store)


def parsed(app: str, command: str, *options: str) -> Any:
    """What a management command makes of its options."""
    return load_command_class(app, command).create_parser("manage.py", command).parse_args(list(options))
