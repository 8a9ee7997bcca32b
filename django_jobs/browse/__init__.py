"""Reads for operators: admin, API and commands read only here.  Never changes a job."""

from __future__ import annotations

from django_jobs.browse.counts import (
    JobCounts,
    Series,
    job_counts,
    queue_names,
    queue_stats,
    readable_stats,
    series,
    stats_payload,
    tag_counts,
    tag_payload,
    usable_queues,
)
from django_jobs.browse.groups import (
    ErrorGroup,
    TooMany,
    bars_of,
    commonest_errors,
    error_bars,
    error_groups,
    error_groups_within,
    matching_groups,
)
from django_jobs.browse.health import shown_queues, unknown_names
from django_jobs.browse.listing import Position, listing
from django_jobs.browse.match import Match, error_key, is_error_key, readable_by
from django_jobs.browse.pages import PAGE, Page, newest_first, page
from django_jobs.browse.reasons import Reason
from django_jobs.browse.search import SHOWN, Search, find, is_exact, selected, with_id
from django_jobs.browse.snapshot import publish_snapshot
from django_jobs.browse.why import ASKED, reason_payload, why
from django_jobs.browse.workflow_payloads import step_payload, workflow_payload
from django_jobs.browse.workflows import (
    Halted,
    batch_jobs,
    find_workflows,
    jobs_of,
    known_workflow,
    steps,
    stopping_steps,
    that_cannot_go_on,
    workflow,
    workflow_of,
)
from django_jobs.stores.values.lists import GROUPED
