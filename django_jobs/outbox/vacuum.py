"""Deleted rows of the outbox on PostgreSQL: each takes space until a VACUUM, and many are deleted in a minute.

Autovacuum looks at a database once a minute by default, whatever the table says, and would leave the space of a minute.
"""

from __future__ import annotations

from django.db import connections

from django_jobs.outbox.entries import rows

#: Deleted rows that may stay.
MOST = 20_000


class Vacuum:
    """What one process knows of the deleted rows."""

    def __init__(self) -> None:
        #: the fewest that there were since its last VACUUM.
        self._least = 0

    def tick(self, alias: str) -> None:
        """Run VACUUM if many rows were deleted.  Raises DatabaseError.

        An old transaction, or the missing right to do it, keeps the rows: the next try is when there are twice as many.
        """
        connection = connections[alias]
        if connection.vendor != "postgresql" or connection.in_atomic_block:
            return
        table = connection.ops.quote_name(rows(alias).model._meta.db_table)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_get_dead_tuples(to_regclass(%s))", [table])
            dead = cursor.fetchone()[0] or 0
            self._least = min(self._least, dead)
            if dead >= max(MOST, 2 * self._least):
                self._least = dead
                cursor.execute(f"VACUUM (SKIP_LOCKED, TRUNCATE FALSE) {table}")
