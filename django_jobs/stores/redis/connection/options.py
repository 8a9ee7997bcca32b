"""The options after the ? of an address: those of redis-py's connections, read by redis-py's own parsers."""

from __future__ import annotations

import inspect
import math
import os
import ssl
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl

import redis
from django.core.exceptions import ImproperlyConfigured
from redis.connection import (
    FALSE_STRINGS,
    URL_QUERY_ARGUMENT_PARSERS,
    AbstractConnection,
    UnixDomainSocketConnection,
    to_bool,
)

#: Given by the rest of the address.
_IN_THE_ADDRESS = {"host", "port", "path"}
#: The store repeats calls itself, reads bytes, and speaks RESP2.
_OF_THE_STORE = {
    *("retry", "retry_on_timeout", "retry_on_error", "decode_responses", "encoding", "encoding_errors"),
    *("protocol", "legacy_responses", "parser_class", "lib_name", "lib_version"),
}
#: Objects: no text can name them.
_OBJECTS = {
    *("credential_provider", "redis_connect_func", "command_packer", "event_dispatcher", "himport_registry"),
    *("socket_keepalive_options", "socket_type", "ssl_ocsp_context"),
}
_OBJECTS_OF_ITS_OWN = ("maint", "orig_", "oss_")
#: Options for the primary only: a Sentinel has its own users and no databases.
OF_THE_PRIMARY = {"db", "username", "password", "client_name"}
#: The prefix of options for the Sentinels only.
FOR_SENTINELS = "sentinel_"
_TRUE_STRINGS = ("1", "T", "TRUE", "Y", "YES")
_FILES = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}


class BadOption(ImproperlyConfigured):
    """An address has an option that it cannot have.  Says what is wrong, and the remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.problem, self.remedy = problem, remedy


def read_options(setting: str) -> dict[str, Any]:
    """Return the options of an address as redis-py takes them; the prefix "sentinel_" is kept.

    Raises BadOption, which shows no password."""
    kind, query = setting.partition(":")[0], setting.partition("?")[2]
    found: dict[str, Any] = {}
    defaults = dict(_allowed(kind))
    for part in filter(None, query.split("&")):
        ((name, text),) = parse_qsl(part, keep_blank_values=True) or [(part, "")]
        if name not in defaults:
            raise _unknown(name, kind, list(defaults), query)
        try:
            found[name] = _value(name.removeprefix(FOR_SENTINELS), text, defaults[name], kind)
        except (ValueError, KeyError) as error:
            shown = "" if is_secret(name) or "@" in query else f" {text!r}"
            wrong = f"has the option {name!r} with the bad value{shown} after the ?"
            raise BadOption(wrong, f"Use {error.args[0]}.") from None
    _compare_no_names(found)
    return found


def _compare_no_names(found: dict[str, Any]) -> None:
    """Turn off the check of host names where no certificate is checked: Python refuses what redis-py 6.0 asks for."""
    names = found.get("ssl_check_hostname", True)
    if found.get("ssl_cert_reqs") == "none":
        found["ssl_check_hostname"] = False
        if found.get(f"{FOR_SENTINELS}ssl_cert_reqs", "none") != "none":
            found.setdefault(f"{FOR_SENTINELS}ssl_check_hostname", names)
    if found.get(f"{FOR_SENTINELS}ssl_cert_reqs") == "none":
        found[f"{FOR_SENTINELS}ssl_check_hostname"] = False


def is_secret(name: str) -> bool:
    """Return whether the value of an option must not be shown."""
    return not name.isidentifier() or "password" in name or "username" in name


def connection_class(kind: str) -> type[redis.Connection]:
    """Return the class of the connections to an address with this scheme."""
    if kind == "unix":
        return UnixDomainSocketConnection  # type: ignore[return-value]
    return redis.SSLConnection if kind.startswith("rediss") else redis.Connection


def _allowed(kind: str) -> Iterator[tuple[str, Any]]:
    """Yield each option that a text can give, with the default of redis-py's connections."""
    never = _IN_THE_ADDRESS | _OF_THE_STORE | _OBJECTS | ({"db"} if "cluster" in kind else set())
    for name, default in _parameters(connection_class(kind)):
        if name in never or name.startswith(_OBJECTS_OF_ITS_OWN):
            continue
        if default is None or isinstance(default, (str, int, float)):
            yield name, default
            if "sentinel" in kind and name not in ("db", "client_name"):
                yield FOR_SENTINELS + name, default
    if kind == "rediss+sentinel":
        yield FOR_SENTINELS + "ssl", True


def _parameters(connection: type[redis.Connection]) -> Iterator[tuple[str, Any]]:
    for each in connection.__mro__:
        if issubclass(each, AbstractConnection) and "__init__" in vars(each):
            for name, parameter in inspect.signature(vars(each)["__init__"]).parameters.items():
                if parameter.kind is not parameter.VAR_KEYWORD and name != "self":
                    yield name, parameter.default


def _unknown(name: str, kind: str, allowed: list[str], query: str) -> BadOption:
    # If a password is not escaped, a part of it may look like an option.
    shown = f" {name!r}" if name.isidentifier() and "@" not in query else ""
    tls = kind.replace("redis", "rediss", 1)
    remedy = f"Allowed options: {', '.join(sorted(set(allowed)))}."
    if name.startswith(("ssl_", "sentinel_ssl")) and kind.partition("+")[0] == "redis":
        remedy = f"For TLS, write {tls}://… instead of {kind}://…"
    elif name == "db":
        remedy = "A Cluster has only one database."
    return BadOption(f"has the unknown option{shown} after the ?", f"Remove it. {remedy}")


def _value(name: str, text: str, default: Any, kind: str) -> Any:
    """Return the value as redis-py's parser reads it; without a parser, as a value of the default's type.

    Raises ValueError, which says what to use instead."""
    parser: Any = URL_QUERY_ARGUMENT_PARSERS.get(name)
    if parser is to_bool or isinstance(default, bool):
        if text.upper() not in (*_TRUE_STRINGS, *FALSE_STRINGS):  # to_bool takes "off" for true
            raise ValueError("yes or no")
        return to_bool(text)
    if name == "ssl_min_version":
        return _tls_version(text)
    if name == "ssl_cert_reqs" and text not in ("none", "optional", "required"):
        raise ValueError("none, optional or required")
    if name in _FILES and not (os.path.isfile(text) and os.access(text, os.R_OK)):
        raise ValueError("the path of a file that this process can read")
    if name == "ssl_ca_path" and not os.path.isdir(text):
        raise ValueError("the path of a folder")
    if not text:
        raise ValueError("a value after the =, or leave the option out")
    if parser in (int, float):
        return _number(name, text, parser, kind)
    if parser is None:
        return text if default is None else type(default)(text)
    try:
        return parser(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a value that redis-py understands ({error})") from None


def _number(name: str, text: str, parser: Callable[[str], Any], kind: str) -> Any:
    least = 0.0 if name in ("db", "health_check_interval") else 1.0 if parser is int else 0.001
    if name == "socket_timeout" and "cluster" in kind:
        least = 2.4  # CLUSTER_TIMEOUT: a shorter one would end the wait of an idle worker
    try:
        value = parser(text)
    except ValueError:
        value = math.nan
    if not least <= value < math.inf:
        raise ValueError(f"a {'whole number' if parser is int else 'number of seconds'} from {least:g}")
    return value


def _tls_version(text: str) -> ssl.TLSVersion:
    try:
        return ssl.TLSVersion(int(text)) if text.isdecimal() else ssl.TLSVersion[text]
    except (ValueError, KeyError):
        raise ValueError("TLSv1_2 or TLSv1_3") from None
