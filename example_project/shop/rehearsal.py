"""A rehearsal of a busy day: any number of jobs that are slow, fail, hang or lose their process."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from django_jobs import JobContext
from django_jobs.core.values import Lane
from django_jobs.events.announce import announce_recovered
from django_jobs.stores import get_store
from shop.forms import RehearsalForm

QUEUE = "rehearsal"
#: Milliseconds between two updates of the page.
EVERY = 800


def perform(ctx: JobContext, milliseconds: int, fail: int, hang: int, crash: int) -> str:
    """Take this long; then fail, hang or crash in that percentage of cases."""
    time.sleep(milliseconds / 1000)
    chance = random.uniform(0, 100)
    if chance < fail:
        raise RuntimeError("the rehearsal has it fail")
    if chance < fail + hang:
        ctx.checkin("hangs until its time limit")
        while True:
            time.sleep(60)
    if chance < fail + hang + crash:
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


@require_http_methods(["GET", "POST"])
@never_cache
def page(request: HttpRequest) -> HttpResponse:
    """GET: the controls and the lists.  POST: enqueue a batch, lose a worker, or sweep."""
    form = RehearsalForm(request.POST or None)
    if request.method == "POST":
        act = {"lose": lose_a_worker, "sweep": sweep}.get(request.POST.get("do", ""))
        if act is not None:
            messages.success(request, act())
            return redirect("rehearsal")
        if form.is_valid():
            messages.success(request, enqueue(form.cleaned_data))
            return redirect("rehearsal")
    return render(request, "shop/rehearsal.html", {"form": form, "lists": lists(), "every": EVERY})


@require_GET
@never_cache
def state(request: HttpRequest) -> JsonResponse:
    """Return how many jobs are in each list, for the page's script."""
    return JsonResponse(lists())


def lists() -> dict[str, int]:
    """Return state → number of the rehearsal's jobs in it."""
    return dict(get_store().stats([QUEUE])[0].counts)


def enqueue(wanted: dict[str, Any]) -> str:
    """Enqueue a batch of one kind, in one round trip."""
    from shop.jobs import rehearse

    knobs = {name: wanted[name] for name in ("milliseconds", "fail", "hang", "crash")}
    rehearse.enqueue_many({"kind": wanted["kind"], **knobs} for _ in range(wanted["number"]))
    return f"{wanted['number']} jobs of kind {wanted['kind']} were enqueued."


def lose_a_worker() -> str:
    """Act as a worker that claims jobs and then disappears."""
    lease = round(settings.DJANGO_JOBS["LEASE"] * 1000)
    taken = get_store().claim(QUEUE, f"a lost worker {time.time_ns()}", 3, lane=Lane.ALONE, lease=lease).claims
    return f"Jobs of the lost worker: {len(taken)}. They are queued again when its lease has ended."


def sweep() -> str:
    """Take back what lost workers held, as every worker does every few seconds."""
    found = get_store().recover(QUEUE)
    announce_recovered(QUEUE, found)
    return f"Jobs that the sweep recovered: {len(found)}."
