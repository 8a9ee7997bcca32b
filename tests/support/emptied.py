"""Between tests that commit, every table is emptied but two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management.color import no_style
from django.db import connections
from django.test import TransactionTestCase

#: Django fills these when it makes a database, and again after each flush: that takes ten times as long as the flush.
KEPT = {"django_content_type", "auth_permission"}


def _empty(case: TransactionTestCase) -> None:
    for alias in case._databases_names(include_mirrors=False):
        connection = connections[alias]
        tables = set(connection.introspection.django_table_names(only_existing=True, include_views=False))
        connection.ops.execute_sql_flush(connection.ops.sql_flush(no_style(), sorted(tables - KEPT)))


@pytest.fixture(scope="session", autouse=True)
def _emptied() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", _empty)
        yield
