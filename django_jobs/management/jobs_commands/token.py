"""`token create NAME --scope …`, `token revoke NAME`, `token list`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from django_jobs.management.jobs_commands.base import Answer, Subcommand, plain, table
from django_jobs.models import ApiToken
from django_jobs.models.token import Scope


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=["create", "revoke", "list"])
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="who will use it")
    parser.add_argument("--scope", action="append", default=[], choices=Scope.values, help="may be given several times")
    parser.add_argument("--job", action="append", default=[], metavar="NAME", help="only these job types")


def run(options: Mapping[str, Any]) -> Answer:
    if options["action"] == "list":
        return listed()
    if not options["name"]:
        raise CommandError(f"Name the token: manage.py jobs token {options['action']} NAME.")
    return create(options) if options["action"] == "create" else revoke(options["name"])


def create(options: Mapping[str, Any]) -> Answer:
    if not options["scope"]:
        raise CommandError(f"Say what it may do: --scope {' --scope '.join(Scope.values)}.")
    try:
        token, secret = ApiToken.objects.issue(options["name"], dict.fromkeys(options["scope"]), options["job"])
    except ValidationError as error:
        raise CommandError(" ".join(error.messages)) from error
    unknown = token.unknown_jobs()
    text = f"{secret}\nWrite it down: it cannot be shown again."
    if unknown:
        names = plain(", ".join(unknown), 300)
        text += f"\nNo job is named {names}. Check the spelling, unless you will create a remote job type of that name."
    return Answer({**described(token), "token": secret, "unknown_jobs": unknown}, text)


def revoke(name: str) -> Answer:
    token = ApiToken.objects.filter(name=name).first()
    if token is None:
        raise CommandError(f"There is no token {name!r}. `manage.py jobs token list` shows them all.")
    token.revoke()
    return Answer(described(token), f"{name}: revoked.")


def listed() -> Answer:
    tokens = list(ApiToken.objects.all())
    rows = [
        (token.name, " ".join(token.scopes), " ".join(token.jobs) or "all", token.last_used_at or "never", state(token))
        for token in tokens
    ]
    text = table(("NAME", "SCOPES", "JOBS", "LAST USED", ""), rows) if rows else "There are no tokens."
    return Answer([described(token) for token in tokens], text)


def described(token: ApiToken) -> dict[str, Any]:
    """Describe a token for programs; its secret is not known."""
    return {
        "name": token.name,
        "scopes": token.scopes,
        "jobs": token.jobs,
        "created_at": token.created_at.isoformat(),
        "last_used_at": token.last_used_at.isoformat() if token.last_used_at else None,
        "revoked_at": token.revoked_at.isoformat() if token.revoked_at else None,
    }


def state(token: ApiToken) -> str:
    return "revoked" if token.revoked_at else ""


TOKEN = Subcommand("Create, revoke and list tokens of the HTTP API.", arguments, run)
