"""Jobs that use a database, named by its alias, in all the ways that may go wrong."""

from __future__ import annotations

import os
import time
from pathlib import Path

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from django_jobs import current_job, job
from tests.integration.database_project.models import Note
from tests.survival.project.jobs import ledger, recorded


def write(alias: str, text: str) -> int:
    me = current_job()
    assert me is not None
    Note.objects.using(alias).create(text=text, attempt=me.attempt)
    return me.attempt


def wait_for(flag: str) -> None:
    while not Path(flag).exists():
        time.sleep(0.01)


@job(name="note", backoff=[0])
def note(alias: str, text: str) -> int:
    with recorded():
        return write(alias, text)


@job(name="pid_after_note")
def pid_after_note(alias: str, text: str) -> int:
    write(alias, text)
    return os.getpid()


@job(name="meet", backoff=[0])
def meet(alias: str, text: str, flag: str) -> None:
    """Opens this thread's connection and keeps the thread until the flag is there."""
    with recorded():
        write(alias, text)
        me = current_job()
        assert me is not None
        ledger.write("met", me.id)
        wait_for(flag)


@job(name="anote", backoff=[0])
async def anote(alias: str, text: str) -> int:
    with recorded():
        return await sync_to_async(write)(alias, text)


def halves(alias: str, text: str, flag: str) -> int:
    """Two rows or none; in the first attempt, waits between them until the flag is there."""
    with recorded(), transaction.atomic(using=alias):
        attempt = write(alias, text)
        me = current_job()
        assert me is not None
        ledger.write("half", me.id, me.token)
        if attempt == 1:
            wait_for(flag)
        write(alias, text)
    return attempt


@job(name="halves", backoff=[0])
def sync_halves(alias: str, text: str, flag: str) -> int:
    return halves(alias, text, flag)


@job(name="ahalves", backoff=[0])
async def async_halves(alias: str, text: str, flag: str) -> int:
    return await sync_to_async(halves)(alias, text, flag)


@job(name="timed_halves", timeout=1, backoff=[0], max_attempts=2)
def timed_halves(alias: str, text: str, flag: str) -> int:
    return halves(alias, text, flag)


@job(name="breaks", backoff=[0], max_attempts=1)
def breaks(alias: str, text: str, how: str) -> None:
    """Leaves its connection as no job may find it."""
    connection = connections[alias]
    write(alias, text)
    match how:
        case "open":
            transaction.atomic(using=alias).__enter__()
            write(alias, text)
        case "broken":
            transaction.atomic(using=alias).__enter__()
            connection.cursor().execute("SELECT nothing")
        case "manual":
            transaction.set_autocommit(False, using=alias)
            write(alias, text)


@job(name="abreaks", max_attempts=1)
async def abreaks(alias: str, text: str) -> None:
    def leave_open() -> None:
        transaction.atomic(using=alias).__enter__()
        write(alias, text)

    await sync_to_async(leave_open)()


@job(name="state")
def state(alias: str) -> list[bool]:
    """Is this thread's connection in a transaction, and does it commit by itself?"""
    connection = connections[alias]
    connection.ensure_connection()
    return [connection.in_atomic_block, connection.get_autocommit()]


@job(name="astate")
async def astate(alias: str) -> list[bool]:
    return await sync_to_async(state)(alias)


def raw_begin(alias: str) -> None:
    connections[alias].cursor().execute("BEGIN")


@job(name="begins")
def begins(alias: str) -> None:
    """Leaves a transaction open that Django does not know of."""
    raw_begin(alias)


@job(name="abegins")
async def abegins(alias: str) -> None:
    await sync_to_async(raw_begin)(alias)
