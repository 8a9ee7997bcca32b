from celery import chain, chord, current_app, group
from celery.result import AsyncResult
from kombu import Queue

from . import tasks
from .tasks import plain


def view(request, thing, options):
    plain.delay(1)
    tasks.bound.apply_async((1,), countdown=3)
    plain.apply_async((1,), queue="mail")
    plain.apply_async((1,), queue="unlisted")
    plain.apply_async((1,), routing_key="x")
    plain.apply_async((1,), **options)
    plain.apply_async((1,), link=plain.s(), link_error=plain.s())
    thing.delay(1)
    thing.apply_async()
    (plain.s(1) | plain.s()).delay()
    chain(plain.s(1), plain.s()).on_error(plain.s())
    group(plain.s(n) for n in range(3)).apply_async()
    plain.delay(1).get(timeout=3)
    AsyncResult("x").revoke()
    request.app.send_task("shop.elsewhere")
    group(plain.s(1)).apply_async(countdown=3)
    result = plain.delay(2)
    result.get(timeout=2)
    AsyncResult("y").revoke(signal="SIGINT")
    group(plain.s(1)).link(plain.s())
    group(plain.s(2)).apply_async(link_error=plain.s())
    chain(plain.s(2), plain.s()).apply_async(task_id="x")
    plain.s(3).freeze()
    result.collect()
    plain.s(4).on_error(plain.s()).delay()
    chord([plain.s(1)], plain.s(), task_id="x")
    plain.apply_async((1,), link=plain.s(), task_id="x")
