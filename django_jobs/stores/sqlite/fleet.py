"""SqliteStore: the list of workers, and small documents that all workers share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django_jobs.core.values import WorkerInfo
from django_jobs.stores.contract.documents import DocumentStore, read_entry, read_worker
from django_jobs.stores.contract.fleet import FleetStore
from django_jobs.stores.sqlite.base import SqlitePart


class SqliteFleet(SqlitePart, FleetStore, DocumentStore):
    """See stores/contract/fleet.py and stores/contract/documents.py for the contract of each method."""

    def publish_worker(self, name: str, info: Mapping[str, Any], ttl: int) -> list[str]:
        now = self.now()
        with self.database.write() as connection:
            connection.execute("DELETE FROM workers WHERE until <= ?", (now,))
            connection.execute(
                "INSERT OR REPLACE INTO workers VALUES (?, ?, ?, ?)", (name, json.dumps(dict(info)), now, now + ttl)
            )
            sql = "SELECT command FROM commands WHERE worker = ? ORDER BY command_id"
            sent = [command for (command,) in connection.execute(sql, (name,))]
            connection.execute("DELETE FROM commands WHERE worker = ?", (name,))
        return sent

    def forget_worker(self, name: str) -> None:
        with self.database.write() as connection:
            connection.execute("DELETE FROM workers WHERE name = ?", (name,))
            connection.execute("DELETE FROM commands WHERE worker = ?", (name,))

    def command_worker(self, name: str, command: str) -> bool:
        with self.database.write() as connection:
            sql = "SELECT 1 FROM workers WHERE name = ? AND until > ?"
            if connection.execute(sql, (name, self.now())).fetchone() is None:
                return False
            connection.execute("INSERT INTO commands (worker, command) VALUES (?, ?)", (name, command))
        return True

    def workers(self) -> list[WorkerInfo]:
        sql = "SELECT name, seen_at, info FROM workers WHERE until > ? ORDER BY name"
        with self.database.read() as connection:
            found = connection.execute(sql, (self.now(),)).fetchall()
        return [WorkerInfo(name, seen_at, read_worker(info)) for name, seen_at, info in found]

    def get_document(self, key: str) -> dict[str, Any]:
        sql = "SELECT entry, value FROM documents WHERE key = ?"
        with self.database.read() as connection:
            return {entry: read_entry(value) for entry, value in connection.execute(sql, (key,))}

    def update_document(
        self, key: str, changes: Mapping[str, Any], *, expected: Mapping[str, Any] | None = None
    ) -> bool:
        sql = "SELECT value FROM documents WHERE key = ? AND entry = ?"
        with self.database.write() as connection:
            for entry, value in (expected or {}).items():
                found = connection.execute(sql, (key, entry)).fetchone()
                if found != (None if value is None else (json.dumps(value),)):
                    return False
            for entry, value in changes.items():
                if value is None:
                    connection.execute("DELETE FROM documents WHERE key = ? AND entry = ?", (key, entry))
                else:
                    values = (key, entry, json.dumps(value))
                    connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", values)
        return True
