"""MIN_REPLICAS: an at-most-once job starts only when its claim would survive a failover of the store."""

from __future__ import annotations

import logging
from time import monotonic

from django_jobs.conf import get_settings
from django_jobs.core.values import Claim
from django_jobs.exceptions import StoreError
from django_jobs.formatting import counted
from django_jobs.stores.redis import Store

logger = logging.getLogger("django_jobs.worker")

#: ms within which the claim must reach the replicas: healthy replicas need a thousandth of that.
TIMEOUT = 1_000
#: ms after which the job is tried again.
AGAIN = 2_000
#: Seconds between two log lines.
QUIET = 60.0

_last_told = -QUIET


def may_start(store: Store, claim: Claim) -> bool:
    """May this at-most-once job start?  Costs one round trip if MIN_REPLICAS is set, otherwise nothing."""
    global _last_told
    replicas = get_settings().min_replicas
    if replicas <= 0:
        return True
    try:
        safe, reason = store.is_replicated(claim, replicas, TIMEOUT), "the replicas did not acknowledge it in time"
    except StoreError as error:
        safe, reason = False, str(error)
    if not safe and monotonic() - _last_told > QUIET:
        _last_told = monotonic()
        logger.warning(
            "Job %s of queue %r is delayed: its claim must reach %s (MIN_REPLICAS) before it starts. Problem: %s",
            claim.id,
            claim.queue,
            counted(replicas, "replica"),
            reason,
        )
    return safe
