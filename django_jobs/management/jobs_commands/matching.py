"""The options that choose jobs, the same for `list`, `retry --all` and `delete --all`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from django_jobs.browse import Match
from django_jobs.browse.query.parsing import FIELDS, NO_STATE, state_of
from django_jobs.browse.query.terms import ms_of
from django_jobs.core.values import State
from django_jobs.management.jobs_commands.base import given
from django_jobs.operations import check_queue
from django_jobs.stores.values.lists import TIMED

#: The help of `--from`.
FROM = "only jobs that are due (scheduled, retry) or ended at this time or later; ISO 8601, in TIME_ZONE if no offset"
#: The options that choose among the jobs of a state, with their keys; `--queue` also goes with ids.
_CHOOSING = {"--name": "name", "--tag": "tag", "--search": "search", "--from": "since", "--until": "until"}
#: The help of `--query`.
QUERY = f"{' '.join(f'{field}:X' for field in FIELDS)} arg.NAME=JSON, and text"


def add_filters(parser: ArgumentParser) -> None:
    parser.add_argument("--queue", default="", help="only this queue")
    parser.add_argument("--name", default="", help="only jobs of this name")
    parser.add_argument("--tag", default="", help="only jobs with this tag")
    parser.add_argument("--search", default="", help="text in id, name, tags, arguments or error; looks into each job")
    parser.add_argument("--from", dest="since", default="", metavar="TIME", help=FROM)
    parser.add_argument("--until", default="", metavar="TIME", help="only jobs whose time is before this one")
    parser.add_argument("--query", default="", help=QUERY)


def match_of(options: Mapping[str, Any], state: State) -> Match:
    """Return the filters of the command line.  Raises CommandError if one of them cannot be used."""
    if options["queue"]:
        check_queue(options["queue"])
    since, before = _time_of("--from", options["since"]), _time_of("--until", options["until"])
    if (since or before) and state not in TIMED:
        raise CommandError(f"Jobs that are {state} are in no order of time: leave out --from and --until.")
    if before and since >= before:
        raise CommandError("--from must be before --until.")
    match = Match(options["queue"], options["name"], options["search"], since=since, before=before, tag=options["tag"])
    match = match.asked(options["query"], state)
    if match.queue and not options["queue"]:
        check_queue(match.queue)
    return match


def state_asked(query: str) -> State:
    """Return the state that a query asks for.  Raises CommandError if it names none."""
    state = state_of(query)
    if state is None:
        raise CommandError(NO_STATE)
    return state


def refuse_filters(options: Mapping[str, Any]) -> None:
    """Raise CommandError if filters are given: with ids they would do nothing."""
    if names := given(options, _CHOOSING):
        raise CommandError(f"{names} chooses among the jobs of a state: use it with {choosing(options)}, without ids.")


def choosing(options: Mapping[str, Any]) -> str:
    """Return the options that take the place of ids."""
    return "--all or --query" if "all" in options else "--query"


def _time_of(option: str, text: str) -> int:
    """Return a time of the command line in ms; 0 for "".  Without an offset it is in the time zone of the settings."""
    if not text:
        return 0
    try:
        ms = ms_of(text)
    except (ValueError, OverflowError) as error:
        raise CommandError(f"{option} {text!r} is not a time. Write it like 2026-01-31T08:30.") from error
    if ms < 1:
        raise CommandError(f"{option} {text!r} is out of range.")
    return ms
