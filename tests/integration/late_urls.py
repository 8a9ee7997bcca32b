"""Addresses whose views bring a job along."""

from __future__ import annotations

from typing import Any

from django_jobs import job

urlpatterns: list[Any] = []


@job
def only_a_view_imports_it() -> None: ...
