"""Jobs that other programs run: defined by rows of RemoteJobType; posted to a URL (push) or fetched (pull)."""

from __future__ import annotations

from django_jobs.remote.type_cache import (
    REFRESH,
    be_told,
    definition_of,
    forget,
    known,
    left_to_pull_workers,
    look_for,
    pull_queues,
    read,
    replace_types,
    tell,
    type_names,
)
