"""`manage.py jobs …`: inspect and manage jobs from a shell.  The subcommands are in jobs_commands."""

from __future__ import annotations

import json
import os
import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.db import Error as DatabaseFault

from django_jobs.exceptions import JobsError
from django_jobs.formatting import migrate_hint, sentence
from django_jobs.management.jobs_commands import SUBCOMMANDS
from django_jobs.models import audit
from django_jobs.runtime.base_command import JobsCommand


class Command(JobsCommand):
    help = "Look at background jobs and act on them."

    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")
        for name, subcommand in SUBCOMMANDS.items():
            subparser = subparsers.add_parser(name, help=subcommand.help, description=subcommand.help)
            subcommand.arguments(subparser)
            subparser.add_argument("--json", action="store_true", help="print JSON")
            djangos_options(subparser)

    def handle(self, *args: Any, **options: Any) -> None:
        check_texts(options)
        try:
            answer = SUBCOMMANDS[options["subcommand"]].run(options)
        except (JobsError, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error
        except DatabaseFault as error:
            said = f"The database cannot be used: {str(error).strip()}{migrate_hint(error)}"
            raise CommandError(sentence(said)) from error
        for act in answer.acts:
            audit.record(audit.shell_user(), audit.Source.COMMAND, act)
        self.show(answer.data if options["json"] else answer.text, as_json=options["json"])
        if answer.code:
            sys.exit(answer.code)

    def show(self, shown: Any, *, as_json: bool) -> None:
        """Print it, also to an output that is not UTF-8.  It is no error if nobody reads to the end (`| head`)."""
        encoding = getattr(self.stdout, "encoding", None) or "utf-8"
        text = json.dumps(shown, indent=2, ensure_ascii=encoding != "utf-8", default=str) if as_json else shown
        try:
            self.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self.stdout.flush()
        except BrokenPipeError:  # what is left is flushed when Python ends
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self.stdout.fileno())


def check_texts(options: Mapping[str, Any]) -> None:
    """Raise CommandError for an argument that is not UTF-8.  Python hands its bytes on as halves of surrogate pairs,
    which neither the store nor a database takes."""
    for value in options.values():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str) and each.encode(errors="replace").decode() != each:
                raise CommandError(f"{each!r} is not UTF-8.")


def djangos_options(parser: ArgumentParser) -> None:
    """Accept Django's own options after the subcommand, too: `manage.py jobs stats --settings shop.production`.

    Without a default: it would replace what was given before the subcommand."""
    for option in ("--settings", "--pythonpath"):
        parser.add_argument(option, default=SUPPRESS, help=SUPPRESS)
    for option in ("--traceback", "--no-color", "--force-color", "--skip-checks"):
        parser.add_argument(option, action="store_true", default=SUPPRESS, help=SUPPRESS)
    parser.add_argument("--verbosity", "-v", type=int, choices=[0, 1, 2, 3], default=SUPPRESS, help=SUPPRESS)
