"""The rows of the Schedule table for a worker: read every few seconds; during an outage, the last known ones."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseFault
from django.db import connections, router

from django_jobs.formatting import counted, migrate_hint
from django_jobs.runtime.complaints import Complaints
from django_jobs.schedules.entry import ScheduleEntry
from django_jobs.schedules.listing import database_entries
from django_jobs.schedules.models import Schedule

logger = logging.getLogger("django_jobs.worker")

#: Seconds between two reads.
RELOAD = 5.0


class ScheduleRows:
    """The entries of the table."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._read_at = float("-inf")
        self._known: list[ScheduleEntry] = []
        self._complaints = Complaints()
        #: the table was read once.
        self.are_known = False

    def entries(self) -> list[ScheduleEntry]:
        """Return the rows.  Never raises: if the database fails, the rows of the last read still apply."""
        if self._time() - self._read_at >= RELOAD:
            self._read_at = self._time()
            self._read()
        return self._known

    def _read(self) -> None:
        try:
            self._known = database_entries()
            self.are_known = True
            self._complaints.is_over()
        except (DatabaseFault, ImproperlyConfigured) as error:
            complaint = f"{type(error).__name__}: {error}{migrate_hint(error)}"
            if self._complaints.is_new(complaint):
                known = counted(len(self._known), "known schedule")
                logger.warning("The Schedule table cannot be read (%s). In use: %s", complaint, known)
        finally:
            self._close()

    def _close(self) -> None:
        """Close the connection, because the parent process forks; not inside a transaction, which its owner ends."""
        try:
            connection = connections[router.db_for_read(Schedule)]
            if not connection.in_atomic_block:
                connection.close()
        except (DatabaseFault, ImproperlyConfigured) as error:
            logger.debug("The connection to the Schedule table could not be closed: %s", error)
