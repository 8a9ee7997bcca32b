"""Jobs as the web process of a project knows them; the workers of these tests run those of the survival project."""

from __future__ import annotations

from django_jobs import job


@job(name="work")
def work(ms: int = 0) -> None:
    """Sleeps for so long, and notes its start and end in the ledger."""
