"""The demo from start to end."""

from __future__ import annotations

import signal
from collections.abc import Callable
from threading import Event
from time import monotonic

from django.conf import settings

from demo import check, ledger, work
from demo.customer import Customer
from demo.processes import Processes
from demo.remote import RemoteWork
from demo.services import MailSink, Partner, free_port
from shop.models import FrontPage

START_SECONDS, WORK_SECONDS = 60, 150
LOOK_EVERY = 0.2


def play(mail: MailSink, partner: Partner, *, once: bool, orders: int) -> int:
    """Start everything, create work, report, and (unless `once`) stay until Ctrl-C.  Returns the exit status."""
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    say("Preparing the shop: tables, products and the user admin …")
    address = f"http://127.0.0.1:{free_port()}"
    remote = RemoteWork(address)
    work.prepare()
    remote.prepare()
    try:
        with Processes() as processes:
            say(f"Starting the web server and the workers on {settings.DJANGO_JOBS['STORE']} …")
            processes.start("workers", "runworkers")
            processes.start("web", "runserver", "--noreload", "--skip-checks", address.removeprefix("http://"))
            status = run(processes, mail, partner, address, remote, orders, stop)
            if not once and not stop.is_set():
                say(f"\nShop:  {address}/\nJobs:  {address}/admin/django_jobs/")
                say("Log in as admin with the password admin.  Ctrl-C stops it.")
                watch(processes, stop)
        if once:
            say(last_line(status, orders))
    except RuntimeError as error:
        say(f"The demo failed: {error}")
        return 1
    finally:
        forget_redis()
    return status


def run(
    processes: Processes,
    mail: MailSink,
    partner: Partner,
    address: str,
    remote: RemoteWork,
    orders: int,
    stop: Event,
) -> int:
    """Enqueue the jobs and report what happened; return 0 if everything is right."""
    if not wait_until(lambda: Customer(address).reaches("/"), START_SECONDS, processes, stop):
        raise RuntimeError(f"the web server does not answer: see {processes.log('web')}")
    remote.start(processes)
    say(f"{orders} orders, {len(work.PHOTOS)} photos, a sales report, an export, a clean-up, and work over HTTP …")
    if remote.missing:
        say(f"(The shell worker is not started: it needs {', '.join(remote.missing)}.)")
    start = monotonic()
    work.trade(address, orders)
    remote.trade()
    done = wait_until(all_done, WORK_SECONDS, processes, stop)
    rows = ledger.look()
    say(f"\n{'All done in' if done else 'Not done after'} {monotonic() - start:.1f} s:\n\n{ledger.table(rows)}\n")
    status = 0 if done else 1
    for right, seen in [*check.effects(mail, partner, orders), *remote.effects()]:
        say(f"  {'ok   ' if right else 'WRONG'} {seen}")
        status = status if right else 1
    for job in [job for row in rows for job in row.wrong]:
        say(f"  WRONG {job.name} {job.id} is {job.state}: {ledger.why(job)}")
        status = 1
    return status


def all_done() -> bool:
    """Return whether every job has ended, and the schedule has run at least once."""
    return ledger.waiting(ledger.look()) == 0 and FrontPage.objects.exists()


def wait_until(done: Callable[[], bool], seconds: float, processes: Processes, stop: Event) -> bool:
    """Wait until `done()`; return False if it takes too long.  Raises RuntimeError if a process ends, or on Ctrl-C."""
    deadline = monotonic() + seconds
    while not done():
        processes.check()
        if monotonic() > deadline:
            return False
        if stop.wait(LOOK_EVERY):
            raise RuntimeError("interrupted.")
    return True


def watch(processes: Processes, stop: Event) -> None:
    """Wait until the user stops the demo, or a process ends by itself."""
    while not stop.wait(1):
        processes.check()


def last_line(status: int, orders: int) -> str:
    """Return the last line of output, for scripts."""
    rows = ledger.look()
    sent = sum(len(row.jobs) for row in rows)
    succeeded, dead = (sum(row.count(state) for row in rows) for state in ("succeeded", "dead"))
    retried = sum(row.retried for row in rows)
    verdict = "demo ok" if status == 0 else "demo FAILED"
    return f"{verdict}: {sent} jobs for {orders} orders, {succeeded} succeeded ({retried} after a retry), {dead} dead"


def forget_redis() -> None:
    """Remove the demo's keys from a Redis that it shares with others; a file store is deleted with the state folder."""
    url = settings.REDIS_URL if settings.STORE.startswith("cache:") else settings.STORE
    if not url.startswith(("redis", "unix", "valkey")):
        return
    from redis import Redis

    with Redis.from_url(url) as server:
        namespace = settings.DJANGO_JOBS["NAMESPACE"]
        keys = list(server.scan_iter(match=f"{{{namespace}*", count=1000))
        if keys:
            server.unlink(*keys)


def say(text: str) -> None:
    """Print immediately: the output may be a pipe."""
    print(text, flush=True)
