"""`retry`, `delete`, `cancel`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from django_jobs import browse, operations
from django_jobs.core.values import WAITING, State
from django_jobs.exceptions import JobNotFound
from django_jobs.formatting import counted
from django_jobs.management.jobs_commands.base import Answer, Subcommand
from django_jobs.management.jobs_commands.matching import add_filters, match_of, refuse_filters
from django_jobs.models import audit
from django_jobs.operations import bulk


def retry_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID")
    parser.add_argument("--all", action="store_true", help="every dead job that matches")
    parser.add_argument(
        "--yes", action="store_true", help="also jobs that are delivered at most once and may have been started"
    )
    add_filters(parser)


def delete_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID")
    states = sorted(state.value for state in operations.VERBS["delete"])
    parser.add_argument("--all", choices=states, metavar="STATE", help="every job in this state that matches")
    parser.add_argument("--yes", action="store_true", help="with --all: delete jobs that have not run without asking")
    add_filters(parser)


def cancel_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("ids", nargs="+", metavar="ID")
    parser.add_argument("--queue", default="", help="the queue of the jobs, if you know it")


def retry(options: Mapping[str, Any]) -> Answer:
    return either("retry", options, State.DEAD if options["all"] else None)


def delete(options: Mapping[str, Any]) -> Answer:
    return either("delete", options, State(options["all"]) if options["all"] else None)


def confirm(state: State) -> None:
    """Ask before jobs are deleted that have not run.  Raises CommandError unless the answer is yes."""
    try:
        answer = input(
            f"Delete all matching jobs in the state {state}? They have not run, and nothing brings them back. [y/N] "
        )
    except EOFError:
        raise CommandError(
            f"These jobs have not run. Add --yes to delete jobs in the state {state} without a question."
        ) from None
    if answer.strip().lower() not in {"y", "yes"}:
        raise CommandError("Nothing was deleted.")


def cancel(options: Mapping[str, Any]) -> Answer:
    return on_ids("cancel", options["ids"], options["queue"])


def either(word: str, options: Mapping[str, Any], state: State | None) -> Answer:
    """Act on the given ids, or on all jobs that match.  `word`: the subcommand, which the answer repeats."""
    if bool(options["ids"]) == bool(state):
        raise CommandError("Name the ids of jobs, or use --all; not both.")
    if state is None:
        refuse_filters(options)
        return on_ids(word, options["ids"], options["queue"], start_again=options["yes"])
    match = match_of(options, state)
    if word == "delete" and state in WAITING and not options["yes"]:
        confirm(state)
    operation = bulk.start(operations.verb_of(word), state, match, user="manage.py jobs", start_again=options["yes"])
    while not operation.finished:
        bulk.drive(operation.id, 60.0)
        latest = bulk.get(operation.id)
        if latest is None:
            raise CommandError(
                "The stored state of this operation cannot be read any more. It has stopped before its end."
            )
        operation = latest
    data = {"moved": operation.moved, "looked_at": operation.seen, "held": operation.held}
    said = f"{word}: {operation.moved} of {counted(operation.seen, f'{state} job')}."
    act = audit.Act(operation.verb, audit.Kind.BULK, operation.id, audit.bulk_details(operation))
    return Answer(data, f"{said} {held_text(operation.held)}".strip(), int(operation.held > 0), [act])


def held_text(number: int, names: str = "") -> str:
    """Return why jobs were not started again, and what to do; "" if there are none."""
    if not number:
        return ""
    return (
        f"Delivered at most once and perhaps started already, so not started again: {names or number}. "
        "Find out what they did; then repeat with --yes."
    )


def on_ids(word: str, ids: list[str], queue: str, *, start_again: bool = False) -> Answer:
    """Find each job, act on it, and report which were not found or had moved on."""
    names = [queue] if queue else browse.queue_names()
    found = {id: browse.find(id, names) for id in ids}
    missing = [id for id, info in found.items() if info is None]
    if len(missing) == len(found):
        raise JobNotFound(f"No such job: {', '.join(missing)}. It may have left the history.")
    moved: list[str] = []
    asked: list[str] = []
    held: list[str] = []
    for info in found.values():
        if info is not None:
            done = operations.act(operations.verb_of(word), info.queue, [info.id], start_again=start_again)
            moved += done.moved
            asked += done.asked
            held += done.held
    left = [id for id, info in found.items() if info is not None and id not in moved + asked + held]
    said = [f"{word}: {counted(len(moved), 'job')}."]
    said += [f"Asked to stop: {', '.join(asked)}."] if asked else []
    said += [held_text(len(held), ", ".join(held))] if held else []
    said += [f"Not possible in their state: {', '.join(left)}."] if left else []
    said += [f"Not found: {', '.join(missing)}."] if missing else []
    data = {"moved": moved, "asked": asked, "held": held, "left": left, "missing": missing}
    done_ids = [(info.queue, id) for id, info in found.items() if info is not None and id in moved + asked]
    facts = {"ids": audit.listed(done_ids), "moved": len(moved), "asked": len(asked), "held": len(held)}
    where = ", ".join(dict.fromkeys(queue for queue, _id in done_ids))
    acts = [audit.Act(operations.verb_of(word), audit.Kind.JOB, where, facts)] if done_ids else []
    return Answer(data, " ".join(said), 1 if left or missing or held else 0, acts)


RETRY = Subcommand("Queue jobs again at once.", retry_arguments, retry)
DELETE = Subcommand("Delete jobs permanently.", delete_arguments, delete)
CANCEL = Subcommand("Cancel waiting jobs; ask running ones to stop.", cancel_arguments, cancel)
