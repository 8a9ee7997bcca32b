"""`retry`, `delete`, `cancel`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from django.core.management.base import CommandError

from django_jobs import operations
from django_jobs.browse import Match
from django_jobs.core.values import WAITING, JobInfo, State
from django_jobs.exceptions import JobNotFound, StoreError
from django_jobs.formatting import counted, plain
from django_jobs.management.jobs_commands.base import CommandResult, Subcommand, ask
from django_jobs.management.jobs_commands.matching import (
    add_filters,
    choosing,
    match_of,
    refuse_filters,
    state_asked,
)
from django_jobs.models import audit
from django_jobs.operations import bulk
from django_jobs.operations.matching import count_matching
from django_jobs.serialization.masking import masked
from django_jobs.serialization.payloads import named_arguments
from django_jobs.serialization.record import job_in, name_of
from django_jobs.stores import get_store


def retry_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID")
    parser.add_argument("--all", action="store_true", help="every dead job that matches")
    parser.add_argument(
        "--yes",
        action="store_true",
        help="also jobs that are delivered at most once and may have been started; with --query: do not ask",
    )
    add_filters(parser)


def delete_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID")
    states = sorted(state.value for state in operations.VERBS["delete"])
    parser.add_argument("--all", choices=states, metavar="STATE", help="every job in this state that matches")
    parser.add_argument("--yes", action="store_true", help="with --all or --query: do not ask")
    add_filters(parser)


def cancel_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID")
    parser.add_argument("--terminate", action="store_true", help="also end the processes of running jobs")
    parser.add_argument("--yes", action="store_true", help="with --query: do not ask")
    add_filters(parser)


def retry(options: Mapping[str, Any]) -> CommandResult:
    return either("retry", options, State.DEAD if options["all"] else None)


def delete(options: Mapping[str, Any]) -> CommandResult:
    return either("delete", options, State(options["all"]) if options["all"] else None)


def confirm(word: str, state: State, match: Match) -> int:
    """Show how many jobs match, and the first of them, and ask.  Return when (ms) they were counted.

    Raises CommandError unless the answer is yes."""
    as_of = get_store().now()
    found = count_matching(state, match)
    some = [masked(info) for info in found.sample]
    lines = [f"  {info.id}  {plain(name_of(info.record))}  {plain(row_text(info))}" for info in some]
    number = f"{'' if found.whole else 'at least '}{counted(found.matching, f'{state} job')}"
    checked = "" if found.whole else f" {found.seen} of {found.total} were checked so far; all will be."
    lost = " They have not run, and nothing brings them back." if word == "delete" and state in WAITING else ""
    said = "\n".join([f"{word}: {number}.{checked}{lost}", *lines, *found.notes.sentences()])
    unasked = f"{said}\nAdd --yes to {word} all that match without a question."
    ask(f"{said}\n{word.capitalize()} all that match?", unasked, "Nothing was changed.")
    return as_of


def row_text(info: JobInfo) -> str:
    """Return the arguments of a job on one line."""
    job = job_in(info)
    call = named_arguments(job) if job is not None else None
    return ", ".join(f"{name}={value}" for name, value in call or ())


def cancel(options: Mapping[str, Any]) -> CommandResult:
    if options["query"] and options["terminate"]:
        raise CommandError("--terminate ends the processes of jobs that you name by their ids: leave out --query.")
    if options["query"] or not options["ids"]:
        return either("cancel", options, None)
    refuse_filters(options)
    return on_ids("cancel", options["ids"], options["queue"], terminate=options["terminate"])


def either(word: str, options: Mapping[str, Any], state: State | None) -> CommandResult:
    """Act on the given ids, or on all jobs that match.  `word`: the subcommand, which the answer repeats."""
    query = options["query"]
    if bool(options["ids"]) == bool(state or query):
        raise CommandError(f"Name the ids of jobs, or use {choosing(options)}; not both.")
    if state is None and not query:
        refuse_filters(options)
        return on_ids(word, options["ids"], options["queue"], start_again=options["yes"])
    state = state or state_asked(query)
    verb = operations.verb_of(word)
    if state not in operations.VERBS[verb]:
        raise CommandError(f"{word} does not apply to jobs that are {state}.")
    match = match_of(options, state)
    asks = not options["yes"] and (query or (word == "delete" and state in WAITING))
    as_of = confirm(word, state, match) if asks else 0
    again = options["yes"] and word == "retry" and not query  # with a query, it answers the question, and no more
    user = audit.shell_user()
    operation = bulk.start(verb, state, match, user=user, start_again=again, as_of=as_of)
    try:
        operation = bulk.finish(operation)
    except BaseException:  # Control-C, or the store is away: a worker goes on with it
        audit.record(user, audit.Source.COMMAND, act_of(operation))
        with suppress(StoreError):
            bulk.follow(operation.id)
        raise
    data = {
        "moved": operation.moved, "looked_at": operation.seen, "held": operation.held, "taken": operation.taken
    }  # fmt: skip
    said = f"{word}: {operation.moved} of {counted(operation.seen, f'{state} job')}."
    held = held_text(operation.held, how="with their ids and --yes" if query else "with --yes")
    said = " ".join(filter(None, (said, held, taken_number(operation.taken))))
    return CommandResult(data, said, int(operation.held + operation.taken > 0), [act_of(operation)])


def act_of(operation: bulk.Operation) -> audit.Act:
    """Return a bulk operation for the audit log."""
    return audit.Act(operation.verb, audit.ObjectKind.BULK, operation.id, audit.bulk_details(operation))


def taken_number(number: int) -> str:
    """Return the same as `operations.taken_text` for so many jobs, without their ids."""
    return f"Not queued, because another job holds their unique key: {number}." if number else ""


def held_text(number: int, names: str = "", how: str = "with --yes") -> str:
    """Return why jobs were not started again, and what to do; "" if there are none."""
    if not number:
        return ""
    return (
        f"Delivered at most once and perhaps started already, so not started again: {names or number}. "
        f"Find out what they did; then repeat {how}."
    )


def on_ids(word: str, ids: list[str], queue: str, **details: bool) -> CommandResult:
    """Find each job, act on it, and report which were not found or had moved on.  `details`: see operations.act."""
    found, missing = dict[str, tuple[JobInfo, bool]](), dict[str, str]()
    for id in ids:
        try:
            found[id] = operations.find(id, queue)
        except JobNotFound as error:
            missing[id] = str(error)
    if not found:
        raise JobNotFound(" ".join(missing.values()))
    done = operations.Done()
    for info, is_archived in found.values():
        if not is_archived:
            done = done.plus(operations.act(operations.verb_of(word), info.queue, [info.id], **details))
    moved, asked, held, taken = done.moved, done.asked, done.held, done.taken
    left = [id for id in found if id not in [*moved, *asked, *held, *taken]]
    said = [f"{word}: {counted(len(moved), 'job')}."]
    said += [f"Asked to stop: {', '.join(asked)}."] if asked else []
    said += [held_text(len(held), ", ".join(held))] if held else []
    said += [operations.taken_text(taken)] if taken else []
    said += [f"Not possible in their state: {', '.join(left)}."] if left else []
    said += missing.values()
    data = {"moved": moved, "asked": asked, "held": held, "taken": taken, "left": left, "missing": [*missing]}
    done_ids = [(info.queue, id) for id, (info, _) in found.items() if id in [*moved, *asked]]
    facts = {"ids": audit.listed(done_ids), "moved": len(moved), "asked": len(asked), "held": len(held)}
    where = ", ".join(dict.fromkeys(queue for queue, _id in done_ids))
    acts = [audit.Act(operations.verb_of(word), audit.ObjectKind.JOB, where, facts)] if done_ids else []
    return CommandResult(data, " ".join(said), 1 if left or missing or held or taken else 0, acts)


RETRY = Subcommand("Queue jobs again at once.", retry_arguments, retry)
DELETE = Subcommand("Delete jobs permanently.", delete_arguments, delete)
CANCEL = Subcommand("Cancel waiting jobs; ask running ones to stop.", cancel_arguments, cancel)
