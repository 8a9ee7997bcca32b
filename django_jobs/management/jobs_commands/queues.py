"""`pause`, `resume`."""

from __future__ import annotations

import getpass
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from django_jobs import browse, operations
from django_jobs.core import registry
from django_jobs.management.jobs_commands.base import Answer, Subcommand
from django_jobs.stores import get_store


def what(parser: ArgumentParser) -> None:
    parser.add_argument("queue", nargs="?", default="", metavar="QUEUE")
    parser.add_argument("--job", default="", metavar="NAME", help="a job type, in QUEUE or in every queue")


def pause_arguments(parser: ArgumentParser) -> None:
    what(parser)
    parser.add_argument(
        "--for", dest="seconds", type=float, metavar="S", help="resume automatically after this many seconds"
    )
    parser.add_argument("--reason", default="")


def pause(options: Mapping[str, Any]) -> Answer:
    seconds = options["seconds"]
    if seconds is not None and not 0 < seconds < 10**9:
        raise CommandError(f"--for is {seconds}: use a number of seconds above 0.")
    until = get_store().now() + int(seconds * 1000) if seconds else 0
    queues, name = chosen(options)
    for queue in queues:
        operations.pause(queue, name=name, reason=options["reason"], until=until, by=user())
    return answer("paused", queues, name)


def resume(options: Mapping[str, Any]) -> Answer:
    queues, name = chosen(options)
    for queue in queues:
        operations.resume(queue, name=name)
    return answer("resumed", queues, name)


def user() -> str:
    """Return the name of the user of this shell: it is shown with the pause."""
    try:
        return f"{getpass.getuser()} (shell)"
    except (OSError, KeyError, ImportError):  # a container's user may have no name
        return "shell"


def chosen(options: Mapping[str, Any]) -> tuple[list[str], str | None]:
    """Return the queues, and the job type or None for whole queues."""
    queue, name = options["queue"], options["job"]
    if not queue and not name:
        raise CommandError("Name a queue, or a job type with --job.")
    if name:
        registry.get(name)
    return ([queue] if queue else browse.queue_names()), name or None


def answer(done: str, queues: list[str], name: str | None) -> Answer:
    """Report the result in one line."""
    said = f"{name} in {', '.join(queues)}" if name else ", ".join(queues)
    return Answer({done: {"queues": queues, "job": name}}, f"{said}: {done}.")


PAUSE = Subcommand("Pause a queue or a job type; running jobs finish.", pause_arguments, pause)
RESUME = Subcommand("Resume a queue or a job type.", what, resume)
