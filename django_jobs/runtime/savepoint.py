"""Statements that may fail inside a transaction of the caller."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from django.db import connections, transaction


def savepoint(using: str) -> AbstractContextManager[Any]:
    """In a transaction of the caller, a statement that fails must not spoil it; outside, it needs no transaction."""
    return transaction.atomic(using=using) if connections[using].in_atomic_block else nullcontext()
