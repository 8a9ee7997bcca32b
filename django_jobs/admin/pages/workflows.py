"""Workflows and batches: the list, and the page of one, with its graph or its jobs; cancel and retry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_jobs import browse, operations
from django_jobs.admin.common import labels, permissions
from django_jobs.admin.common.console import Console, read_number
from django_jobs.admin.jobs.actions import shown_at
from django_jobs.admin.jobs.forms import AgainForm
from django_jobs.admin.pages import graph
from django_jobs.browse.query.parsing import written as as_query
from django_jobs.browse.workflow_payloads import error_of
from django_jobs.core.values import JobInfo
from django_jobs.exceptions import JobMoved, WorkflowNotFound
from django_jobs.formatting import number as written
from django_jobs.models.audit import ObjectKind
from django_jobs.serialization.record import name_of
from django_jobs.stores import get_store
from django_jobs.workflows.reading import STOPPING, StepInfo, WorkflowInfo

#: Rows of the list, and steps of the table.
PAGE, STEPS = 50, 100
#: A page with more steps than this is refreshed less often.
MANY = 500


def workflow_list(console: Console) -> HttpResponse:
    """Show workflows and batches, newest first."""
    query = console.request.GET
    state = query.get("state", "") if query.get("state") in labels.WORKFLOW_STATES else ""
    kind = query.get("kind", "") if query.get("kind") in labels.WORKFLOW_KINDS else ""
    after = query.get("after", "")
    try:
        found = browse.find_workflows(state, kind, after, PAGE)
    except ValueError:
        after, found = "", browse.find_workflows(state, kind, "", PAGE)
    chosen = {name: value for name, value in (("state", state), ("kind", kind)) if value}
    context = {
        "rows": [row_of(info) for info in found.rows],
        "found": found,
        "state": state,
        "kind": kind,
        "states": labels.WORKFLOW_STATES.items(),
        "kinds": labels.WORKFLOW_KINDS.items(),
        "filtered": bool(chosen),
        "newest": f"?{urlencode(chosen)}" if after else "",
        "older": f"?{urlencode(chosen | {'after': found.following})}" if found.following else "",
    }
    return console.render("workflows.html", _("Workflows"), context, here="workflows")


def row_of(info: WorkflowInfo) -> dict[str, Any]:
    return {
        "info": info,
        "title": title_of(info),
        "row_title": title_of(info),
        "state": info.state,
        "state_label": labels.WORKFLOW_STATES.get(info.state, info.state),
        "kind_label": labels.WORKFLOW_KINDS.get(info.kind, info.kind),
        "percent": int(info.progress * 100),
        "ended": info.ended,
        "stopped_by": [(labels.STEP_STATES[state], count) for state, count in info.stopped_by.items()],
        "css": CSS.get(info.state, info.state),
    }


#: The state of a job whose colour a state of a workflow or of a step has.
CSS = {"live": "running", "waiting": "scheduled", "stopped": "dead", "deleted": "cancelled"}


def title_of(info: WorkflowInfo) -> str:
    """Return its name; many have none."""
    return info.name[:200] or (_("Unnamed batch") if info.kind == "batch" else _("Unnamed workflow"))


def workflow_page(console: Console, id: str) -> HttpResponse:
    """GET: show one workflow or batch.  POST: cancel it, or retry its dead steps."""
    try:
        info = browse.workflow(id)
    except WorkflowNotFound:
        context = {"id": id}
        title = _("This workflow does not exist any more")
        return console.render("workflow_gone.html", title, context, here="workflows", status=404)
    return post(console, info) if console.request.method == "POST" else show(console, info)


def show(console: Console, info: WorkflowInfo) -> HttpResponse:
    """Show its progress, its graph, and a page of its steps."""
    state = console.request.GET.get("state", "")
    state = state if state in labels.STEP_STATES else ""
    live = info.ended_at is None
    context = row_of(info) | {
        "is_batch": info.kind == "batch",
        "refresh": (3 if info.total <= MANY else 15) if live else 60,
        "counts": [
            (each, label, info.counts[each], CSS.get(each, each), f"?state={each}")
            for each, label in labels.STEP_STATES.items()
            if info.counts[each]
        ],
        "only": state,
        "may_cancel": info.may_be_cancelled and console.may(permissions.VERBS["cancel"]),
        "may_retry": bool(info.stopped_by) and info.state != "cancelled" and console.may(permissions.VERBS["revive"]),
    }
    context |= batch_part(console, info, state) if info.kind == "batch" else graph_part(console, info, state)
    return console.render("workflow.html", title_of(info), context, here="workflows")


def batch_part(console: Console, info: WorkflowInfo, state: str) -> dict[str, Any]:
    after = console.request.GET.get("after", "")[:255]
    try:
        found = browse.batch_jobs(info, state, after=after, limit=STEPS)
    except ValueError:
        after, found = "", browse.batch_jobs(info, state, limit=STEPS)
    chosen = {"state": state} if state else {}
    more = {**chosen, "after": found.following} if found.following else {}
    return {
        "steps": rows_of(console, sorted(found.rows, key=lambda job: job.job_id)),
        "newest": f"?{urlencode(chosen)}" if after else "",
        "older": f"?{urlencode(more)}" if more else "",
        "callbacks": [
            (name, started, console.url("jobs", "queued") + f"?{urlencode({'q': as_query(f'{info.id}.{name}')})}")
            for name, started in info.callbacks.items()
        ],
    }


def graph_part(console: Console, info: WorkflowInfo, state: str) -> dict[str, Any]:
    """Return the drawing of a workflow, and a page of its steps: all, those of one state, or those of one box."""
    steps = browse.steps(info.id)
    drawn = graph.drawing(
        [graph.Node(step.number, step.name or step.job, step.job, step.state, step.after) for step in steps]
    )
    # A step that was cancelled before its turn has no job, and jobs leave the history.
    jobs = {} if drawn.is_grouped else browse.jobs_of(steps)
    boxes = [shown(console, steps, drawn, place, jobs) for place in range(len(drawn.boxes))]
    query = console.request.GET
    box = read_number(query.get("box"), 0)
    chosen = {name: value for name, value in (("state", state), ("box", query.get("box", ""))) if value}
    if drawn.is_grouped and 0 < box <= len(drawn.boxes):
        steps = [steps[each] for each in sorted(drawn.boxes[box - 1].steps)]
    else:
        chosen.pop("box", None)
    steps = [step for step in steps if state in ("", step.state)]
    some, pages = console.part(steps, STEPS, chosen, "#jobs-steps")
    return pages | {
        "graph": drawn,
        "boxes": boxes,
        "steps": rows_of(console, some),
        "box": box if "box" in chosen else 0,
    }


@dataclass(frozen=True, slots=True)
class Shown:
    box: graph.Box
    #: the address that it leads to; "" if there is nothing to see.
    url: str
    label: str
    #: the label, as much of it as there is room for.
    text: str
    #: the states of its steps, and the same as far as there is room.
    says: str
    short: str
    css: str
    shares: list[tuple[str, float, float]]


def shown(
    console: Console, steps: list[StepInfo], drawn: graph.Drawing, place: int, jobs: Mapping[str, JobInfo]
) -> Shown:
    box = drawn.boxes[place]
    many = len(box.steps)
    label = (
        box.label if box.label != graph.MIXED else ngettext("%(n)s step", "%(n)s steps", many) % {"n": written(many)}
    )
    if many == 1:
        says = str(labels.STEP_STATES[box.state])
    else:
        says = ", ".join(f"{written(box.counts[state])} {labels.STEP_STATES[state]}" for state in box.states)
    url = f"?box={place + 1}#jobs-steps" if drawn.is_grouped else ""
    if many == 1 and (step := steps[box.steps[0]]).job_id in jobs:
        url = console.url("job", step.queue, step.job_id)
    shares = [(CSS.get(state, state), x, width) for state, x, width in graph.shares(box.counts, graph.WIDTH)]
    text, short = graph.shortened(label), graph.shortened(says, graph.COLUMNS + 6, is_name=False)
    return Shown(box, url, label, text, says, short, CSS.get(box.state, box.state), shares)


def rows_of(console: Console, steps: Sequence[StepInfo]) -> list[dict[str, Any]]:
    """Return steps as the table shows them.  Reads their jobs."""
    jobs = browse.jobs_of(steps)
    return [row_of_step(console, step, jobs.get(step.job_id)) for step in steps]


def row_of_step(console: Console, step: StepInfo, job: JobInfo | None) -> dict[str, Any]:
    state, error = str(labels.STEP_STATES[step.state]), ""
    if job is not None and step.state in STOPPING:
        error = error_of(job, arguments=console.sees_arguments) or ""
    if job is not None and step.state == "live":
        state = str(labels.STATES[job.state])
    return {
        "step": step,
        "name": step.job or (name_of(job.record)[:200] if job is not None else ""),
        "url": console.url("job", step.queue, step.job_id) if job is not None else "",
        "state": state,
        "css": job.state.value if job is not None and step.state == "live" else CSS.get(step.state, step.state),
        "after": step.after[:10],
        "more": max(0, len(step.after) - 10),
        "at": job.at if job is not None and step.state != "waiting" else 0,
        "error": error,
    }


# -- cancel and retry --------------------------------------------------------------


def post(console: Console, info: WorkflowInfo) -> HttpResponse:
    """Ask for confirmation where it is needed, act, report, and write a log entry."""
    data = console.request.POST
    verb = data.get("do", "")
    if verb not in {"cancel", "retry"}:
        return HttpResponseBadRequest(_("There is no such action for workflows."), content_type="text/plain")
    console.require(permissions.VERBS["cancel" if verb == "cancel" else "revive"])
    here = console.url("workflow", info.id)
    held = operations.staying_steps(info.id).held if verb == "retry" else []
    form = AgainForm(data if "confirmed" in data else None) if held else None
    asks = verb == "cancel" or form is not None
    if asks and ("confirmed" not in data or (form is not None and not form.is_valid())):
        return confirm(console, info, verb, form, len(held))
    try:
        if verb == "retry":
            return retry(console, info, again=form is not None and form.cleaned_data["start_again"])
        if operations.cancel_workflow(info.id):
            return console.back(here, messages.SUCCESS, log(console, info, verb))
    except (JobMoved, WorkflowNotFound):
        pass
    return console.back(here, messages.WARNING, _("The workflow has changed its state in the meantime."))


def confirm(console: Console, info: WorkflowInfo, verb: str, form: forms.Form | None, held: int) -> HttpResponse:
    title = _("Cancel this workflow?") if verb == "cancel" else _("Retry the dead steps?")
    context = row_of(info) | {"title": title, "verb": verb, "form": form, "held": held, "left": info.total - info.ended}
    context["as_of"] = get_store().now()
    return console.render("workflow_confirm.html", title, context, here="workflows")


def retry(console: Console, info: WorkflowInfo, *, again: bool) -> HttpResponse:
    """Retry its dead steps; those that are delivered at most once only if `again`, and if the page that asked could
    show their end."""
    as_of = shown_at(console.request.POST.get("as_of", ""))
    moved = len(operations.retry_workflow(info.id)) + (operations.retry_held(info.id, as_of) if again else 0)
    held, taken = operations.staying_steps(info.id)
    if moved:
        log(console, info, "retry", moved=moved, held=len(held), taken=len(taken))
    said = labels.report("revive", moved, held=len(held), taken=len(taken), holders=taken)
    return console.back(console.url("workflow", info.id), messages.SUCCESS if moved else messages.WARNING, said)


def log(console: Console, info: WorkflowInfo, verb: str, **numbers: int) -> str:
    return console.log(verb, ObjectKind.WORKFLOW, info.id, name=title_of(info), **numbers)
