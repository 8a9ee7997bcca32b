"""The answer to "why does this job not start?", as the OpenAPI document describes it."""

from __future__ import annotations

from typing import Literal

from ninja import Schema
from pydantic import Field


class About(Schema):
    """What keeps a job from starting: a queue, another job, the workers, all queues."""

    kind: Literal["queue", "job", "workers", "queues"]
    name: str | None = Field(None, description="Of the queue; of a job, the queue that it is in.")
    id: str | None = Field(None, description="Of the job.")


class Finding(Schema):
    """One thing that is wrong, or (`not_checked`) could not be checked."""

    kind: str
    severity: Literal["error", "warning"]
    #: a worker, job type, schedule or workflow, a queue, or the store.
    subject: str
    #: null: not known.
    since: str | None
    says: str
    #: finer than the kind.
    cause: str | None = None
    queue: str | None = None
    #: what helps; null if the sentence says it.
    act: str | None = None
    #: address of the page in the admin that shows the cause.
    link: str | None = None


class Why(Schema):
    """Why a job does not start."""

    id: str
    queue: str
    state: str
    cause: str = Field(description="One word for programs, such as `queue_paused`; others may be added.")
    reason: str = Field(description="One sentence for people.")
    since: str | None = Field(description="Since when that is so, if it is known.")
    until: str | None = Field(description="When it ends by itself, if it does.")
    about: About | None
    findings: list[Finding] = Field([], description="What is wrong and may keep it from starting or ending.")
