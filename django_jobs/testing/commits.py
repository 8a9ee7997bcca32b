"""Transactions in tests: what TestCase opens round the whole test is none to the code under test."""

from __future__ import annotations

from functools import partial

from django.db import connections

from django_jobs.enqueue.submit import send_after_commit


def in_transaction_of_the_code(alias: str) -> bool:
    """Is the code under test inside an atomic() of its own?"""
    connection = connections[alias]
    # The mark by which Django itself lets durable atomics pass inside TestCase.
    return connection.in_atomic_block and not all(getattr(b, "_from_testcase", False) for b in connection.atomic_blocks)


def run_commit_callbacks(alias: str) -> None:
    """Enqueue what waited for a commit that TestCase keeps from happening.

    Django drops the callbacks of what was rolled back by itself; inside an atomic() of the code nothing happens yet.
    """
    if in_transaction_of_the_code(alias):
        return
    connection = connections[alias]
    ours = [entry for entry in connection.run_on_commit if _is_ours(entry[1])]
    connection.run_on_commit = [entry for entry in connection.run_on_commit if not _is_ours(entry[1])]
    for entry in ours:
        entry[1]()


def _is_ours(callback: object) -> bool:
    return isinstance(callback, partial) and callback.func is send_after_commit
