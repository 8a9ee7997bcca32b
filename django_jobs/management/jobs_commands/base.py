"""The definition of a subcommand, and its output."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.core.management.base import CommandError

from django_jobs.archive.rows import as_aware
from django_jobs.formatting import plain
from django_jobs.models.audit import Act

#: Maximum of `--limit`; for more, use the HTTP API's cursors.
MOST = 10_000


class CommandResult(NamedTuple):
    """The result of a subcommand: data for programs, and a text."""

    data: Any
    text: str
    #: exit code
    code: int = 0
    #: what it did, for the audit log
    acts: Sequence[Act] = ()


@dataclass(frozen=True, slots=True)
class Subcommand:
    help: str
    arguments: Callable[[ArgumentParser], None]
    run: Callable[[Mapping[str, Any]], CommandResult]


def no_arguments(parser: ArgumentParser) -> None:
    """Used by subcommands without arguments."""


def limit_of(options: Mapping[str, Any]) -> int:
    """Return `--limit`.  Raises CommandError."""
    limit: int = options["limit"]
    if not 1 <= limit <= MOST:
        raise CommandError(f"--limit is {limit}: use 1 to {MOST:,}.")
    return limit


def given(options: Mapping[str, Any], named: Mapping[str, str]) -> str:
    """Return which of these options were given; "" for none.  `named`: each option, and its key."""
    return " and ".join(
        name for name, key in named.items() if options[key] is not False and options[key] not in (None, "", [])
    )


def refuse_unused(options: Mapping[str, Any], what: str, unused: Mapping[str, str]) -> None:
    """Raise CommandError for options that do nothing here: whoever gives one expects something of it."""
    if names := given(options, unused):
        raise CommandError(f"`{what}` has no use for {names}.")


def iso_of(at: datetime | None, timespec: str = "auto") -> str | None:
    """Return a time of the database in UTC with its offset, as all other times; with USE_TZ = False it comes in local
    time, without an offset."""
    return as_aware(at).astimezone(UTC).isoformat(timespec=timespec) if at else None


def ask(question: str, unasked: str, refused: str) -> None:
    """Ask a question.  Raises CommandError with the second text if nobody can answer, the third if the answer is no.

    It is not asked on stdout, where programs read the answer (`--json`)."""
    try:
        with redirect_stdout(sys.stderr):
            answer = input(f"{question} [y/N] ")
    except (EOFError, RuntimeError):  # the input has ended, or was closed
        raise CommandError(unasked) from None
    if answer.strip().lower() not in {"y", "yes"}:
        raise CommandError(refused)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return columns of text.  Control characters in jobs' data do not reach the terminal."""
    lines = [["" if cell is None else plain(str(cell)) for cell in row] for row in (headings, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
