"""Conversion of values to plain JSON, as Django's own backends convert the arguments and results of tasks."""

from __future__ import annotations

import json
from typing import Any

from django_jobs.tasks_backend.compat import normalize_json


def as_json_makes_it(value: Any) -> Any:
    """Return the value as it comes back from JSON: keys are text, tuples are lists, bytes are text.

    Raises what Django's `normalize_json` raises for other types (TypeError, ValueError), and ValueError for NaN and
    infinity, which no JSON has.  So nothing of a task needs the tags that `@job` writes for dates and the like."""
    return json.loads(json.dumps(normalize_json(value), allow_nan=False))
