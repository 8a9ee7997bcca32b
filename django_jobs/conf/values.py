"""The allowed values of each key of DJANGO_JOBS.  The checks use this module; conf/__init__.py reads the settings."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

#: Returns None for a valid value, else the remedy.
Judge = Callable[[Any], str | None]


def whole(least: int, most: int) -> Judge:
    """A whole number in a range; True and False are not accepted."""
    remedy = f"Use a whole number from {least} to {most}."
    return lambda value: None if type(value) is int and least <= value <= most else remedy


def seconds(least: float, most: float) -> Judge:
    """A number of seconds in a range."""

    def check(value: Any) -> str | None:
        good = isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
        return None if good else f"Use seconds, from {least:.10g} to {most:.10g}."

    return check


def one_of(*choices: str) -> Judge:
    """One of the given words."""
    remedy = f"Use one of {', '.join(map(repr, choices))}."
    return lambda value: None if value in choices else remedy


def truth(value: Any) -> str | None:
    """True or False."""
    return None if isinstance(value, bool) else "Use True or False."


def text(value: Any) -> str | None:
    """Text that is not empty."""
    return None if isinstance(value, str) and value else "Use text."


def store(value: Any) -> str | None:
    """Text; conf/store_address.py checks it further, with a separate error for an empty one."""
    good = isinstance(value, str) or not value
    return None if good else "Use text, as in 'redis://localhost:6379/0' or 'embedded'."


def name_part(value: Any) -> str | None:
    """Text that can be part of a key: a namespace or the name of a queue."""
    if isinstance(value, str) and 0 < len(value) <= 100 and value.isprintable() and not set(value) & set("{}:, \\/"):
        return None
    return "Use up to 100 printable characters without space and { } : , / \\."


def dotted_paths(value: Any) -> str | None:
    """A list of dotted paths."""
    good = isinstance(value, list | tuple) and all(isinstance(path, str) for path in value)
    return None if good else "Use a list of dotted paths, as in ['shop.middleware.timing']."


def module_names(value: Any) -> str | None:
    """A list of names of modules."""
    good = isinstance(value, list | tuple) and all(
        isinstance(name, str) and all(part.isidentifier() for part in name.split(".")) for name in value
    )
    return None if good else "Use a list of module names, as in ['jobs', 'tasks', 'background.mail']."


def host_names(value: Any) -> str | None:
    """A list of host names."""
    good = isinstance(value, list | tuple | set | frozenset) and all(
        isinstance(name, str) and "/" not in name for name in value
    )
    return None if good else "Use a list of host names without http://, as in ['worker.internal']."


def dictionary(example: str) -> Judge:
    """A dict with text keys."""

    def check(value: Any) -> str | None:
        good = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
        return None if good else f"Use a dict, as in {example}."

    return check


def routes(value: Any) -> str | None:
    """A dict of patterns, each with the name of a queue."""
    good = isinstance(value, Mapping) and all(isinstance(part, str) and part for item in value.items() for part in item)
    return None if good else "Use a dict of patterns and queues, as in {'shop.reports.*': 'slow'}."


def dictionary_or_none(example: str) -> Judge:
    """A dict, or None for a part that is switched off."""
    check = dictionary(example)
    return lambda value: None if value is None or check(value) is None else f"{check(value)} None switches it off."


def credentials(value: Any) -> str | None:
    """A dict of names, each with the value that is sent for it, and secrets that sign."""
    good = isinstance(value, Mapping) and all(
        isinstance(entry, Mapping) and _credential(entry) for entry in value.values()
    )
    hint = (
        "Use a dict, as in {'media': {'token': '…'}, 'mail': {'user': '…', 'password': '…', 'secrets': ['whsec_…']}}. "
        "A token is one line, and a secret at least 16 bytes in base64."
    )
    return None if good else hint


def _credential(entry: Mapping[str, Any]) -> bool:
    rest = {key: part for key, part in entry.items() if key != "secrets"}
    if "secrets" in entry:
        secrets = entry["secrets"]
        if not isinstance(secrets, list | tuple) or not secrets or not all(map(_secret, secrets)):
            return False
    fits = set(rest) in ({"token"}, {"user", "password"}) or (not rest and "secrets" in entry)
    return fits and all(isinstance(part, str) for part in rest.values()) and rest.get("token", "").isprintable()


def _secret(value: Any) -> bool:
    try:
        return isinstance(value, str) and len(b64decode(value.removeprefix("whsec_") + "==", validate=False)) >= 16
    except ValueError:
        return False


def outbox(value: Any) -> str | None:
    """True, False, or "always"."""
    return None if isinstance(value, bool) or value == "always" else 'Use True, False or "always".'


def release(value: Any) -> str | None:
    """One line of text, or None; "": there is no release."""
    good = value is None or (isinstance(value, str) and len(value) <= 200 and value.isprintable())
    return None if good and value == (value and value.strip()) else "Use text in one line, of at most 200 characters."


YEAR = 366 * 86_400

KEYS: dict[str, Judge] = {
    "STORE": store,
    "TEST_STORE": store,
    "NAMESPACE": name_part,
    "QUEUES": dictionary("{'default': {}, 'mail': {'PRIORITY': 10}}"),
    "QUEUE_ORDER": one_of("weighted", "strict"),
    "MODULES": module_names,
    "MIDDLEWARE": dotted_paths,
    "ENQUEUE_MIDDLEWARE": dotted_paths,
    "ON_COMMIT": truth,
    "DATABASE": text,
    "OUTBOX": outbox,
    "NOTIFY": dotted_paths,
    "RELEASE": release,
    "JOB_DEFAULTS": dictionary("{'max_attempts': 5}"),
    "ROUTES": routes,
    "LEASE": seconds(1, 86_400),
    "PROCESSES": whole(1, 1024),
    "THREADS": whole(1, 1024),
    "SHUTDOWN_TIMEOUT": seconds(0, 86_400),
    "HISTORY": dictionary("{'succeeded': 1000, 'ttl': 86400}"),
    "DEAD": dictionary("{'max': 100000, 'ttl': 15552000}"),
    "IDEMPOTENCY": seconds(0, 100 * YEAR),
    "MAX_PAYLOAD": whole(1, 512 * 1024 * 1024),
    "MIN_REPLICAS": whole(0, 100),
    "SCHEDULES": dictionary("{'nightly': {'job': 'shop.jobs.clean_up', 'cron': '0 3 * * *'}}"),
    "ARCHIVE": dictionary_or_none("{'DAYS': 180}"),
    "API": dictionary_or_none("{} for tokens, or {'REQUIRE_HTTPS': True}"),
    "CONSOLE": dictionary("{'AUTHORIZER': 'shop.people.may_operate'}"),
    "EAGER": truth,
    "EAGER_PROPAGATES": truth,
}

QUEUE_KEYS: dict[str, Judge] = {
    "PRIORITY": whole(1, 100_000),
    "MAX_CONCURRENCY": whole(0, 1_000_000),
    "MAX_LENGTH": whole(0, 1_000_000_000),
    "ON_FULL": one_of("reject", "block"),
}

#: Keys whose values may contain a password and are not shown.
SECRET = frozenset({"STORE", "TEST_STORE", "API", "CREDENTIALS"})

#: Keys whose values are dicts with keys of their own.
PARTS: dict[str, dict[str, Judge]] = {
    "HISTORY": {"succeeded": whole(0, 1_000_000_000), "ttl": seconds(1, 100 * YEAR)},
    "DEAD": {"max": whole(0, 1_000_000_000), "ttl": seconds(1, 100 * YEAR)},
    "ARCHIVE": {"DAYS": whole(1, 36_500), "BACKLOG": whole(1000, 1_000_000_000)},
    "API": {"AUTHORIZER": text, "REQUIRE_HTTPS": truth, "REMOTE_HOSTS": host_names, "CREDENTIALS": credentials},
    "CONSOLE": {"AUTHORIZER": text},
}
