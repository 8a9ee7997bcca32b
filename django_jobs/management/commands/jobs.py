"""`manage.py jobs …`: inspect and manage jobs from a shell.  The subcommands are in jobs_commands."""

from __future__ import annotations

import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_jobs.exceptions import JobsError
from django_jobs.management.jobs_commands import SUBCOMMANDS
from django_jobs.management.jobs_commands.base import as_json
from django_jobs.models import audit


class Command(BaseCommand):
    help = "Look at background jobs and act on them."

    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")
        for name, subcommand in SUBCOMMANDS.items():
            subparser = subparsers.add_parser(name, help=subcommand.help, description=subcommand.help)
            subcommand.arguments(subparser)
            subparser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            answer = SUBCOMMANDS[options["subcommand"]].run(options)
        except (JobsError, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error
        for act in answer.acts:
            audit.record(audit.Actor(audit.shell_user(), audit.Source.COMMAND), act)
        self.stdout.write(as_json(answer.data) if options["json"] else answer.text)
        if answer.code:
            sys.exit(answer.code)
