"""Tasks of Django's framework that the tests enqueue."""

from __future__ import annotations

from typing import Any

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

from django_jobs import Snooze

ran: list[Any] = []


@task()
def add(a: int, b: int = 1) -> int:
    ran.append((a, b))
    return a + b


@task()
def break_down(message: str) -> None:
    raise ValueError(message)


@task()
async def add_later(a: int) -> int:
    return a + 1


@task(takes_context=True)
def tell(context: Any, word: str) -> list[Any]:
    return [word, context.attempt, context.task_result.id]


@task()
def anything(*args: Any, **kwargs: Any) -> Any:
    return [list(args), kwargs]


@task()
def put_off() -> None:
    raise Snooze("not now", in_=1)


@task()
def no_json(what: str) -> Any:
    ran.append(what)
    return {1, 2} if what == "set" else "x" * 300_000


@task()
def nothing() -> None:
    ran.append("nothing")
