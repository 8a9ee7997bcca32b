"""A receiver of a signal that writes: on whatever thread the worker sends it."""

from __future__ import annotations

from typing import Any

from tests.integration.database_project.models import Note


def write_down(*, name: str, job: Any, **_: Any) -> None:
    if name in ("anote", "note"):
        alias, text = job.args
        Note.objects.using(alias).create(text=f"{text} told")
