"""What is done over HTTP stands in the audit log, once, however often the call is sent."""

from __future__ import annotations

import pytest

from django_jobs.models.audit import AuditEntry
from tests.integration.api.conftest import Api

pytestmark = pytest.mark.django_db


def test_what_is_done_over_http_stands_in_it_once(api: Api, kind: str) -> None:
    AuditEntry.objects.all().delete()
    api.put(f"v1/jobs/{kind}/1", {"data": 1})
    for _ in range(2):
        assert api.post(f"v1/jobs/{kind}/1/kill", {"reason": "wrong customer"}).status_code == 200
    (entry,) = AuditEntry.objects.all()
    assert (entry.verb, entry.kind, entry.subject, entry.source) == ("kill", "job", "pull", "http")
    assert entry.details == {"ids": [["pull", "1"]], "moved": 1, "reason": "wrong customer"}
    for _ in range(2):
        assert api.post(f"v1/jobs/{kind}/1/retry", {}).status_code == 200
    assert AuditEntry.objects.count() == 2
