"""`token create NAME --scope …`, `token rotate NAME`, `token revoke NAME`, `token list`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.utils import timezone
from django.utils.translation import override

from django_jobs.formatting import plain
from django_jobs.management.jobs_commands.base import CommandResult, Subcommand, iso_of, refuse_unused, table
from django_jobs.models import ApiToken, audit
from django_jobs.models.token import Scope

#: The options, their keys, and the actions that use them.
_OPTIONS: Mapping[str, tuple[str, Collection[str]]] = {
    "NAME": ("name", ("create", "rotate", "revoke")),
    "--scope": ("scope", ("create",)),
    "--job": ("job", ("create",)),
    "--days": ("days", ("create",)),
    "--per-minute": ("per_minute", ("create",)),
    "--overlap": ("overlap", ("rotate",)),
}
#: The longest life of a token that is to expire: a hundred years.
MOST_DAYS = 36_525
#: The longest overlap of two secrets: a year.
MOST_HOURS = 8_784


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=["create", "rotate", "revoke", "list"])
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="who will use it")
    parser.add_argument("--scope", action="append", default=[], choices=Scope.values, help="may be given several times")
    parser.add_argument("--days", type=float, help="the token expires after so many days")
    parser.add_argument("--per-minute", type=int, metavar="N", help="more requests in a minute are answered 429")
    parser.add_argument(
        "--overlap", type=float, metavar="HOURS", help="how long the old secret stays valid (default: 24)"
    )
    parser.add_argument("--job", action="append", default=[], metavar="NAME", help="only these job types")


def run(options: Mapping[str, Any]) -> CommandResult:
    action, overlap = options["action"], options["overlap"]
    unused = {name: key for name, (key, actions) in _OPTIONS.items() if action not in actions}
    refuse_unused(options, f"token {action}", unused)
    if action == "list":
        return listed()
    if not options["name"]:
        raise CommandError(f"Name the token: manage.py jobs token {action} NAME.")
    if action == "rotate":
        return rotate(options["name"], 24 if overlap is None else overlap)
    return create(options) if action == "create" else revoke(options["name"])


def create(options: Mapping[str, Any]) -> CommandResult:
    if not options["scope"]:
        raise CommandError(f"Choose at least one scope: --scope {' --scope '.join(Scope.values)}.")
    if options["days"] is not None and not 0 < options["days"] <= MOST_DAYS:
        raise CommandError(f"--days {options['days']:g}: use more than 0 and at most {MOST_DAYS} days.")
    expires_at = None if options["days"] is None else timezone.now() + timedelta(days=options["days"])
    try:
        token, secret = ApiToken.objects.issue(
            options["name"], dict.fromkeys(options["scope"]), options["job"], expires_at, options["per_minute"]
        )
    except ValidationError as error:
        with override("en"):
            raise CommandError(" ".join(error.messages)) from error
    unknown = token.unknown_jobs()
    text = f"{secret}\nWrite it down: it cannot be shown again."
    if unknown:
        names = plain(", ".join(unknown), 300)
        text += f"\nNo job is named {names}. Check the spelling, unless you will create a remote job type of that name."
    return CommandResult(
        {**described(token), "token": secret, "unknown_jobs": unknown},
        text,
        acts=[audit.Act("create", audit.ObjectKind.TOKEN, token.name)],
    )


def rotate(name: str, hours: float) -> CommandResult:
    if not 0 <= hours <= MOST_HOURS:
        raise CommandError(f"--overlap {hours:g}: use 0 to {MOST_HOURS} hours.")
    token = ApiToken.objects.filter(name=name, revoked_at=None).order_by("-created_at").first()
    if token is None or token.has_expired():
        raise CommandError(f"There is no valid token {name!r}: manage.py jobs token list.")
    secret = token.rotate(timedelta(hours=hours))
    text = f"{secret}\nWrite it down: it cannot be shown again. The old one is valid for {hours:g} hours."
    return CommandResult(
        {**described(token), "token": secret}, text, acts=[audit.Act("rotate", audit.ObjectKind.TOKEN, name)]
    )


def revoke(name: str) -> CommandResult:
    # A revoked token may have the same name.
    tokens = list(ApiToken.objects.filter(name=name).order_by("created_at"))
    if not tokens:
        raise CommandError(f"There is no token {name!r}: manage.py jobs token list.")
    valid = [token for token in tokens if token.revoked_at is None]
    for token in valid:
        token.revoke()
    acts = [audit.Act("revoke", audit.ObjectKind.TOKEN, name)] if valid else []
    return CommandResult(described(tokens[-1]), f"{name}: revoked.", acts=acts)


def listed() -> CommandResult:
    tokens = list(ApiToken.objects.all())
    rows = [
        (
            token.name,
            " ".join(token.scopes),
            " ".join(token.jobs) or "all",
            iso_of(token.last_used_at, "seconds") or "never",
            state(token),
        )
        for token in tokens
    ]
    text = table(("NAME", "SCOPES", "JOBS", "LAST USED", "VALID"), rows) if rows else "There are no tokens."
    return CommandResult([described(token) for token in tokens], text)


def described(token: ApiToken) -> dict[str, Any]:
    """Describe a token for programs; its secret is not known."""
    return {
        "name": token.name,
        "scopes": token.scopes,
        "jobs": token.jobs,
        "created_at": iso_of(token.created_at),
        "last_used_at": iso_of(token.last_used_at),
        "expires_at": iso_of(token.expires_at),
        "per_minute": token.per_minute,
        "old_secret_until": iso_of(token.old_until),
        "revoked_at": iso_of(token.revoked_at),
    }


def state(token: ApiToken) -> str:
    if token.revoked_at:
        return "revoked"
    if token.expires_at is None:
        return ""
    return "expired" if token.has_expired() else f"until {iso_of(token.expires_at, 'seconds')}"


TOKEN = Subcommand("Create, rotate, revoke and list tokens of the HTTP API.", arguments, run)
