"""The base of both commands.  It is not with the subcommands of `jobs`, which no worker should hold in its memory."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand


class JobsCommand(BaseCommand):
    """A command that works where its output is closed (`>&-`), and starts while no database answers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        super().__init__(*args, **kwargs)

    def get_check_kwargs(self, options: Any) -> Any:
        """Choose the system checks that need no database: by default, those of models ask all of them (Django 6.1)."""
        return super().get_check_kwargs(options) | {"databases": []}
