"""SQLite that answers no query while a file named by OPTIONS["gag"] exists: a database whose server hangs.

Who waits says so by a second file, `<gag>.heard`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from django.db.backends.sqlite3 import base


class DatabaseWrapper(base.DatabaseWrapper):
    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        self.gag = Path(params.pop("gag"))
        return params

    def create_cursor(self, name: str | None = None) -> Any:
        while self.gag.exists():
            self.gag.with_suffix(".heard").touch()
            time.sleep(0.02)
        return super().create_cursor(name)
