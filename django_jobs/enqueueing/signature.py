"""A call that has not been made: `task.s(…)`, a part of a workflow."""

from __future__ import annotations

import copy
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.core.definition import JobDefinition
from django_jobs.core.placeholders import allowed
from django_jobs.enqueueing.request import NewJobRequest, checked_arguments, unknown_queue
from django_jobs.exceptions import InvalidArguments, PayloadError
from django_jobs.formatting import call_text


class Signature:
    """One call of a job, checked as `enqueue` checks it.  It can be a part of any number of workflows."""

    __slots__ = ("names_results", "request")

    def __init__(self, request: NewJobRequest) -> None:
        """Raises InvalidArguments, PayloadError or UnknownQueue, as `enqueue` does."""
        settings, definition = get_settings(), request.definition
        if request.id is not None or request.on_commit is not None:
            option, given = ("job_id", request.id) if request.id is not None else ("on_commit", request.on_commit)
            raise InvalidArguments(
                f"{definition.name}.using({option}={given!r}).s(): a step has no {option} of its own. Leave it out: "
                "the ids of steps are made of the workflow's id, and a workflow is enqueued as a whole."
            )
        self.names_results = False
        try:
            data = checked_arguments(request, settings)
        except PayloadError:
            with allowed():
                data = checked_arguments(request, settings)
            self.names_results = True
        if request.queue not in settings.queues:
            raise unknown_queue(request.queue, settings)
        if self.names_results and definition.max_concurrency and definition.concurrency_key is not None:
            raise InvalidArguments(
                f"{definition.name}.s(): its concurrency_key needs the arguments when the workflow is enqueued, and "
                "one of them is the result of another step. Pass the value itself, or an id that leads to it."
            )
        request.data = None if self.names_results or settings.enqueue_middleware else data
        self.request = request

    def __repr__(self) -> str:
        args, kwargs = self.definition.hide(self.request.args, self.request.kwargs)
        return call_text(f"{self.definition.name}.s", args, kwargs)

    @property
    def definition(self) -> JobDefinition:
        """The job that is called."""
        return self.request.definition

    @property
    def keeps_no_result(self) -> bool:
        """Whether the result is never stored."""
        changed: Any = (self.request.changed or {}).get("keep_result")
        return (self.definition.keep_result if changed is None else changed) == 0

    def enqueue(self) -> Any:
        """Refuse: a signature is enqueued as a part of a workflow.  Raises InvalidArguments."""
        raise InvalidArguments(
            f"{self!r} is a signature. Use {self.definition.name}.enqueue(…) for one job, or chain({self!r}).enqueue()."
        )

    def new_request(self) -> NewJobRequest:
        """Return a request for one step, which the caller may change."""
        return copy.copy(self.request)
