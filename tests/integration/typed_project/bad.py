"""Each line with a mark is wrong: a checker must complain there, and nowhere else."""

from __future__ import annotations

from django_jobs import JobContext, job


@job(max_attemps=3)  # wrong
def one(order_id: int) -> None: ...


@job(delivery="sometimes")  # wrong
def two(order_id: int) -> None: ...


@job(takes_context=True, max_attempts="3")  # wrong
def three(ctx: JobContext, order_id: int) -> None: ...


@job
def send(order_id: int, *, copy: bool = False) -> int:
    return order_id


@job(queue="mail", takes_context=True)
def export(ctx: JobContext, name: str) -> None: ...


@job
async def fetch(url: str) -> bytes:
    return url.encode()


def use() -> None:
    send.using(max_attemps=3).enqueue(1)  # wrong
    send.using(job_id=7).enqueue(1)  # wrong
    send.enqueue("seven")  # wrong
    send.enqueue()  # wrong
    send.using(queue="mail").enqueue(7, size=1)  # wrong
    send.enqueue_in(5)  # wrong
    send.enqueue_in(5, 7, copy="yes")  # wrong
    print(send.enqueue_unique(7).id)  # wrong
    export.enqueue(5)  # wrong
    fetch.enqueue(5)  # wrong
    send.enqueue_many([1, 2])  # wrong
    text: str = send.enqueue(1).wait()  # wrong
    print(text)


async def use_async() -> None:
    await send.aenqueue("seven")  # wrong
    await send.aenqueue_in(5)  # wrong
    number: str = await send.aenqueue(1)  # wrong
    print(number)
