"""`workflows`, `workflow`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from django_jobs import browse, operations
from django_jobs.browse.workflow_payloads import error_of
from django_jobs.formatting import counted, plain
from django_jobs.management.jobs_commands.acting import held_text
from django_jobs.management.jobs_commands.base import CommandResult, Subcommand, ask, limit_of, table
from django_jobs.models import audit
from django_jobs.serialization.payloads import iso
from django_jobs.workflows.reading import StepInfo, WorkflowInfo

STATES = ("running", "succeeded", "stopped", "cancelled")


def list_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--state", choices=STATES, default="", metavar="STATE", help="only workflows in this state")
    parser.add_argument("--limit", type=int, default=50, help="the maximum number of workflows (default: 50)")


def list_workflows(options: Mapping[str, Any]) -> CommandResult:
    found = operations.workflows(options["state"], limit=limit_of(options))
    rows = found.rows
    lines = [[info.id, plain(info.name, 40), info.kind, *standing(info), iso(info.created_at)] for info in rows]
    text = table(["id", "name", "kind", "state", "steps ended", "since"], lines) if lines else ""
    said = f"Shown: {len(rows)}. Checked: {found.looked_at} of {counted(found.total, 'workflow')}."
    return CommandResult([browse.workflow_payload(info) for info in rows], f"{text}\n{said}".strip())


def standing(info: WorkflowInfo) -> tuple[str, str]:
    """Return the state, with its reason, and the progress."""
    why = ", ".join(f"{number} {state}" for state, number in info.stopped_by.items())
    state = info.state if info.closed or info.ended_at is not None else f"{info.state}, open"
    return f"{state} ({why})" if why else state, f"{info.ended}/{info.total}"


def workflow_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    parser.add_argument("--limit", type=int, default=100, help="the maximum number of steps (default: 100)")
    verbs = parser.add_mutually_exclusive_group()
    verbs.add_argument("--cancel", action="store_true", help="cancel what waits; ask what runs to stop")
    verbs.add_argument("--retry", action="store_true", help="queue the dead, expired and cancelled steps again")
    parser.add_argument(
        "--yes",
        action="store_true",
        help="with --cancel: do not ask; with --retry: also at-most-once jobs that may have been started",
    )


def workflow(options: Mapping[str, Any]) -> CommandResult:
    if options["yes"] and not (options["cancel"] or options["retry"]):
        raise CommandError("--yes belongs to --cancel or --retry.")
    if options["cancel"]:
        return cancel(options)
    return retry(options) if options["retry"] else show(options)


def show(options: Mapping[str, Any]) -> CommandResult:
    info = browse.workflow(options["id"])
    rows = operations.steps(info.id, limit=limit_of(options))
    stopping = browse.stopping_steps(info.id)
    jobs = browse.jobs_of([*rows, *stopping])
    data = browse.workflow_payload(info) | {
        "steps": [browse.step_payload(step, jobs.get(step.job_id)) for step in rows]
    }
    state, ended = standing(info)
    facts = {
        info.kind: f"{info.id} {plain(info.name, 200)}".strip(),
        "state": state,
        "steps ended": f"{ended} ({info.progress:.0%})",
        "steps": ", ".join(f"{number} {state}" for state, number in info.counts.items() if number),
        "since": iso(info.created_at),
        "ended": iso(info.ended_at or 0),
        "callbacks": ", ".join(
            f"{name} {'started' if done else 'not started'}" for name, done in info.callbacks.items()
        ),
    }
    lines = [f"{name + ':':<14} {said}" for name, said in facts.items() if said]
    lines += [stop_line(step, jobs.get(step.job_id)) for step in stopping]
    if info.ended - info.counts["succeeded"] > len(stopping):
        lines.append("… and more.")
    cells = [step_row(step, browse.step_payload(step, jobs.get(step.job_id))) for step in rows]
    lines += ["", table(["step", "name", "job", "queue", "state", "after"], cells)] if cells else []
    if len(rows) < info.total:
        lines.append(f"Shown: {len(rows)} of {counted(info.total, 'step')}. Use --limit for more.")
    return CommandResult(data, "\n".join(lines))


def stop_line(step: StepInfo, job: Any) -> str:
    """Return why a step does not let the workflow go on."""
    error = error_of(job) if job is not None else None
    return f"{step.state + ':':<14} {step.job_id}{f': {plain(error, 300)}' if error else ''}"


def step_row(step: StepInfo, payload: Mapping[str, Any]) -> list[object]:
    """Return a step as one line.  A step whose job waits or runs has the job's state."""
    state = (payload["job_state"] or step.state) if step.state == "live" else step.state
    after = ",".join(map(str, step.after[:10])) + (",…" if len(step.after) > 10 else "")
    number = step.job_id if payload["number"] is None else step.number
    return [number, step.name, payload["job"], step.queue, "queued" if state == "live" else state, after]


def cancel(options: Mapping[str, Any]) -> CommandResult:
    info = browse.workflow(options["id"])
    if info.may_be_cancelled and not options["yes"]:
        left = counted(info.total - info.ended, "step has", "steps have")
        question = f"Cancel {info.kind} {info.id}? {left} not ended, and a cancelled {info.kind} cannot go on."
        unasked = "A cancelled workflow cannot go on. Add --yes to cancel it without a question."
        ask(question, unasked, "Nothing was cancelled.")
    done = operations.cancel_workflow(info.id)
    info = browse.workflow(info.id)
    said = (
        f"cancel: {info.kind} {info.id} is cancelled."
        if done
        else f"{info.kind.capitalize()} {info.id} is {info.state}."
    )
    acts = [audit.Act("cancel", audit.ObjectKind.WORKFLOW, info.id, {"name": info.name})] if done else []
    if info.counts["live"]:
        said += f" Asked to stop: {counted(info.counts['live'], 'job')}."
    return CommandResult(browse.workflow_payload(info), said, int(info.state != "cancelled"), acts)


def retry(options: Mapping[str, Any]) -> CommandResult:
    restarted = operations.retry_workflow(browse.workflow(options["id"]).id)
    moved = len(restarted)
    if options["yes"]:
        moved += operations.retry_held(options["id"])
    staying = operations.staying_steps(options["id"])
    held, taken = [job_id for _queue, job_id in staying.held], staying.taken
    names = ", ".join(held[:20]) + (", …" if len(held) > 20 else "")
    data = browse.workflow_payload(browse.workflow(options["id"]))
    told = (f"retry: {counted(moved, 'step')}.", held_text(len(held), names), operations.taken_text(taken))
    facts = {"moved": moved, "held": len(held), "taken": len(taken)}
    acts = [audit.Act("retry", audit.ObjectKind.WORKFLOW, options["id"], facts)] if moved else []
    data |= {"moved": moved, "restarted": restarted, "held": held, "taken": taken}
    return CommandResult(data, " ".join(filter(None, told)), int(bool(held or taken)), acts)


WORKFLOWS = Subcommand("List workflows and batches, the newest first.", list_arguments, list_workflows)
WORKFLOW = Subcommand("Show one workflow or batch; cancel it, or retry its dead steps.", workflow_arguments, workflow)
