"""The embedded store: one SQLite file for one machine, or memory for tests."""

from django_jobs.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
