"""How many requests a minute: those that a token makes, and those that are made to the URL of a remote job type.

They are counted in Django's cache "default": over all processes, if these share it.  Without a cache, and while its
server is away, there is no limit.
"""

from __future__ import annotations

import logging
import time

from django.core.cache import cache

logger = logging.getLogger("django_jobs")


def counted(what: str, most: int | None) -> tuple[int, int]:
    """Count a request.  Return how many there are beyond `most` in this minute, this one included (0: it may be made),
    and the seconds until the next minute begins.  `most`: None = there is no limit, and nothing is counted."""
    if most is None:
        return 0, 0
    minute, second = divmod(int(time.time()), 60)
    key = f"django_jobs:requests:{what}:{minute}"
    try:
        cache.add(key, 0, 120)
        made = cache.incr(key)
    except Exception as error:  # of whatever cache it is; one that keeps nothing raises ValueError
        logger.warning("The requests of %s cannot be counted: %s", what, error)
        return 0, 60 - second
    return max(0, made - most), 60 - second
