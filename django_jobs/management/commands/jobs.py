"""`manage.py jobs …`: inspect and manage jobs from a shell.  The subcommands are in jobs_commands."""

from __future__ import annotations

import json
import sys
from argparse import SUPPRESS, ArgumentParser
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from django_jobs.exceptions import JobsError
from django_jobs.formatting import migrate_hint
from django_jobs.management.jobs_commands import SUBCOMMANDS
from django_jobs.models import audit


class Command(BaseCommand):
    help = "Look at background jobs and act on them."

    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")
        for name, subcommand in SUBCOMMANDS.items():
            subparser = subparsers.add_parser(name, help=subcommand.help, description=subcommand.help)
            subcommand.arguments(subparser)
            subparser.add_argument("--json", action="store_true", help="print JSON")
            djangos_options(subparser)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            answer = SUBCOMMANDS[options["subcommand"]].run(options)
        except (JobsError, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            if hint := migrate_hint(error):
                raise CommandError(f"{error}{hint}.") from error
            raise
        for act in answer.acts:
            audit.record(audit.shell_user(), audit.Source.COMMAND, act)
        self.stdout.write(
            json.dumps(answer.data, indent=2, ensure_ascii=False, default=str) if options["json"] else answer.text
        )
        if answer.code:
            sys.exit(answer.code)


def djangos_options(parser: ArgumentParser) -> None:
    """Accept Django's own options after the subcommand, too: `manage.py jobs stats --settings shop.production`.

    Without a default: it would replace what was given before the subcommand."""
    for option in ("--settings", "--pythonpath"):
        parser.add_argument(option, default=SUPPRESS, help=SUPPRESS)
    for option in ("--traceback", "--no-color", "--force-color", "--skip-checks"):
        parser.add_argument(option, action="store_true", default=SUPPRESS, help=SUPPRESS)
    parser.add_argument("--verbosity", "-v", type=int, choices=[0, 1, 2, 3], default=SUPPRESS, help=SUPPRESS)
