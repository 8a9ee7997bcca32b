"""Transactions in tests: the one that TestCase opens around the test does not count for the code under test."""

from __future__ import annotations

from functools import partial

from django.db import connections

from django_jobs.enqueueing.commits import run_after_commit, send_after_commit


def in_transaction_of_the_code(alias: str) -> bool:
    """Return whether the code under test is inside an atomic() of its own."""
    connection = connections[alias]
    # Django itself uses this mark to allow durable atomics inside TestCase.
    return connection.in_atomic_block and not all(getattr(b, "_from_testcase", False) for b in connection.atomic_blocks)


def run_commit_callbacks(alias: str) -> None:
    """Enqueue the jobs that wait for a commit that TestCase prevents.

    Django itself drops the callbacks of rolled-back transactions.  Inside an atomic() of the code, does nothing yet.
    """
    if in_transaction_of_the_code(alias):
        return
    connection = connections[alias]
    ours = [entry for entry in connection.run_on_commit if _is_ours(entry[1])]
    connection.run_on_commit = [entry for entry in connection.run_on_commit if not _is_ours(entry[1])]
    for entry in ours:
        entry[1]()


def _is_ours(callback: object) -> bool:
    return isinstance(callback, partial) and callback.func in (send_after_commit, run_after_commit)
