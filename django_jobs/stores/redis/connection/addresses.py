"""Makes connection pools from the STORE setting: a URL, or an alias of django-redis.

The store always makes its own pool.  django-redis shares one pool among all aliases of a URL, with the options of the
first alias, and an alias for a cache may have timeouts that break a waiting worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import redis
from django.core.exceptions import ImproperlyConfigured
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry
from redis.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

from django_jobs.conf.store_address import SCHEMES, address_problem
from django_jobs.runtime import forks
from django_jobs.stores.redis.connection.options import (
    FOR_SENTINELS,
    OF_THE_PRIMARY,
    BadOption,
    connection_class,
    is_secret,
    read_options,
)

#: Seconds.  Together they stay below the 5 s in which enqueue() promises an answer.  The timeout for a read is longer
#: than the longest blocking wait (2 s).
CONNECT_TIMEOUT = 1.5
SOCKET_TIMEOUT = 3.0
#: Shorter, because the Cluster client reads twice from a node that does not answer.
CLUSTER_TIMEOUT = 2.4

#: RESP2, because its replies are the same from every server version.  redis-py repeats no calls (see _no_retry): the
#: store does it itself, and only for calls that may be sent twice.
OURS: dict[str, Any] = {
    "socket_connect_timeout": CONNECT_TIMEOUT,
    "socket_timeout": SOCKET_TIMEOUT,
    "socket_keepalive": True,
    "decode_responses": False,
    "health_check_interval": 0,
    "protocol": 2,
}

#: Options that a unix socket does not accept.
TCP_ONLY = {"socket_keepalive"}

#: Entries of connection_kwargs that redis-py keeps for itself, or that would change what OURS says.
NOT_TO_COPY = {
    "maint_notifications_pool_handler",
    "maint_notifications_config",
    "orig_host_address",
    "orig_socket_timeout",
    "orig_socket_connect_timeout",
    "connection_pool",
    "retry",
    "retry_on_timeout",
    "retry_on_error",
    "parser_class",
    "encoder_class",
    "credential_provider_lock",
}


def _no_retry() -> dict[str, Any]:
    return {"retry": Retry(NoBackoff(), 0), "retry_on_error": []}


def _without_tcp(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in TCP_ONLY}


def pool_from_setting(setting: str) -> redis.ConnectionPool:
    """Make a pool for any setting except Cluster.  Raises ImproperlyConfigured, naming the setting and the remedy."""
    if setting.startswith("cache:"):
        return _pool_from_alias(setting.removeprefix("cache:"))
    address = _read(setting)
    if "+sentinel" in address.kind:
        return _pool_from_sentinels(address)
    return make_pool(address.connection_class, address.first | address.options | address.credentials)


def cluster_from_setting(setting: str) -> Callable[[], redis.RedisCluster]:
    """Return a maker of clients.  Raises ImproperlyConfigured, naming the setting and the remedy."""
    from redis.cluster import REDIS_ALLOWED_KEYS, ClusterNode

    address = _read(setting)
    defaults = {k: v for k, v in OURS.items() if k != "health_check_interval"} | {"socket_timeout": CLUSTER_TIMEOUT}
    options = defaults | address.options | address.credentials
    # One repeat: without it, the client takes no other node for commands without a key.
    options |= {"retry": Retry(NoBackoff(), 1), "max_connections": 2**31}
    # The Cluster client ignores these silently.  With a URL, it accepts a class of connections that knows them.
    others = {name: options.pop(name) for name in address.options.keys() - set(REDIS_ALLOWED_KEYS)}
    options |= {"url": "redis://{host}:{port}".format_map(_in_url(address.hosts[0]))}
    options["connection_class"] = _ours(address.connection_class, **others)
    nodes = address.hosts
    return lambda: redis.RedisCluster(startup_nodes=[ClusterNode(**node) for node in nodes], **options)


class _Address(NamedTuple):
    """The parts of an address."""

    kind: str
    connection_class: type[redis.Connection]
    #: What redis-py reads from a URL of the first host: host and port, or the path of a socket, and the database.
    first: dict[str, Any]
    #: User and password before the @.
    credentials: dict[str, Any]
    hosts: list[dict[str, Any]]
    service: str
    options: dict[str, Any]


def _read(setting: str) -> _Address:
    if setting.partition(":")[0] not in SCHEMES:
        raise ImproperlyConfigured(f"DJANGO_JOBS['STORE'] is no address of one of {', '.join(SCHEMES)}.")
    if wrong := address_problem(setting):
        raise _improper(setting, f"is an address that {wrong[0]}", wrong[1])
    try:
        options = read_options(setting)
    except BadOption as error:
        raise _improper(setting, error.problem, error.remedy) from None
    kind, _, rest = setting.partition("?")[0].partition("://")
    location, slash, path = rest.partition("/")
    service, database = "", slash + path
    if kind.endswith("+sentinel"):
        service, _, database = path.strip("/").partition("/")
    credentials, at, hosts = location.rpartition("@")
    several = hosts.split(",")
    first = parse_url(f"{kind.partition('+')[0]}://{credentials}{at}{several[0]}/{database.lstrip('/')}")
    first.pop("connection_class", None)
    who = {name: first.pop(name) for name in ("username", "password") if name in first}
    return _Address(
        kind, connection_class(kind), first, who, [_place(kind, host) for host in several], unquote(service), options
    )


def _place(kind: str, host: str) -> dict[str, Any]:
    parts = urlsplit(f"//{host}")
    return {"host": unquote(parts.hostname or ""), "port": parts.port or (26379 if "+sentinel" in kind else 6379)}


def _in_url(place: dict[str, Any]) -> dict[str, Any]:
    host = place["host"]
    return place | {"host": f"[{host}]" if ":" in host else host}


def make_pool(kind: type[redis.Connection], options: dict[str, Any]) -> redis.ConnectionPool:
    """Make a pool of connections of this class, with OURS and these options."""
    ours = OURS | options | _no_retry()
    if issubclass(kind, redis.UnixDomainSocketConnection):
        ours = _without_tcp(ours)
    return redis.ConnectionPool(connection_class=_ours(kind), max_connections=2**31, **ours)


def _pool_from_sentinels(address: _Address) -> redis.ConnectionPool:
    own = {name: value for name, value in address.options.items() if name.startswith(FOR_SENTINELS)}
    of_primary = {name: value for name, value in address.options.items() if name not in own}
    of_both = {name: value for name, value in of_primary.items() if name not in OF_THE_PRIMARY}
    of_sentinels = of_both | {name.removeprefix(FOR_SENTINELS): value for name, value in own.items()}
    kind = address.connection_class
    if not of_sentinels.pop("ssl", True):
        kind = redis.Connection
        of_sentinels = {name: value for name, value in of_sentinels.items() if not name.startswith("ssl_")}
    database = {"db": address.first.get("db", 0)}
    return _sentinel_pool(
        address.service,
        _sentinels((kind, place | of_sentinels) for place in address.hosts),
        address.connection_class,
        database | of_primary | address.credentials,
    )


def _sentinels(each: Iterable[tuple[type[redis.Connection], dict[str, Any]]]) -> Sentinel:
    """Make Sentinels with our own connections: those of redis-py do not take all options, and repeat commands."""
    manager = Sentinel([])
    manager.sentinels = [_Sentinel(connection_pool=make_pool(kind, options)) for kind, options in each]
    return manager


class _Sentinel(redis.Redis):
    """One Sentinel.  Its errors show its `repr`, which contains the password in redis-py 6."""

    def __repr__(self) -> str:
        place = self.connection_pool.connection_kwargs
        return f"Sentinel {place['host']}:{place['port']}"


def _sentinel_pool(
    service: str, manager: Sentinel, kind: type[redis.Connection], options: dict[str, Any]
) -> SentinelConnectionPool:
    managed = SentinelManagedSSLConnection if issubclass(kind, redis.SSLConnection) else SentinelManagedConnection
    return SentinelConnectionPool(service, manager, connection_class=_ours(managed), **(OURS | options | _no_retry()))


def _ours(kind: type[redis.Connection], **options: Any) -> type[redis.Connection]:
    """Return this class with these options.  While one of its connections makes its socket, a fork waits."""
    _import_what_connections_need()

    class Connection(kind):  # type: ignore[misc, valid-type]
        def __init__(self, **given: Any) -> None:
            super().__init__(**{**given, **options})

        def connect(self) -> None:
            with forks.put_off():
                super().connect()

    return Connection


@cache
def _import_what_connections_need() -> None:
    """Let redis-py and Python import now what they import for the first connection.

    A thread that forks while another imports a module makes a copy in which that module stays locked for ever."""
    redis.Connection()
    "localhost".encode("idna")


def _pool_from_alias(alias: str) -> redis.ConnectionPool:
    from django.core.cache import InvalidCacheBackendError
    from django_redis import get_redis_connection

    setting = f"cache:{alias}"
    try:
        client = get_redis_connection(alias)
    except (InvalidCacheBackendError, NotImplementedError) as error:
        problem = f"names CACHES[{alias!r}], which is not a django-redis cache with one server ({error})"
        raise _improper(setting, problem, _ALIAS_REMEDY) from error
    except redis.exceptions.RedisError as error:  # a Cluster's client connects when it is made
        problem = f"names CACHES[{alias!r}], whose client cannot be made ({error})"
        raise _improper(setting, problem, "Write the address itself, such as 'redis+cluster://host:6379'.") from error
    if isinstance(client, redis.RedisCluster):
        nodes = ",".join(sorted(node.name for node in client.get_nodes()))
        remedy = f"Write 'redis+cluster://{nodes}', with user:password@ before it if there is one; rediss for TLS."
        raise _improper(setting, f"names CACHES[{alias!r}], which uses the client of a Cluster", remedy)
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        managers = [each.connection_pool for each in pool.sentinel_manager.sentinels]
        manager = _sentinels((each.connection_class, _to_copy(each)) for each in managers)
        return _sentinel_pool(pool.service_name, manager, pool.connection_class, _to_copy(pool))
    return make_pool(pool.connection_class, _to_copy(pool))


_ALIAS_REMEDY = "Use an alias with BACKEND 'django_redis.cache.RedisCache', or a URL."


def _to_copy(pool: redis.ConnectionPool) -> dict[str, Any]:
    """Return the place, the user and the password, without the options that OURS sets."""
    return {name: value for name, value in pool.connection_kwargs.items() if name not in NOT_TO_COPY | OURS.keys()}


def _improper(setting: str, problem: str, remedy: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"DJANGO_JOBS['STORE'] is {redacted(setting)!r}: it {problem}. {remedy}")


def redacted(setting: str) -> str:
    """Return the setting in a form that may be shown: without users and passwords."""
    scheme, separator, rest = setting.partition("://")
    if "@" in rest:
        rest = f"…@{rest.rpartition('@')[2]}"
    place, question, query = rest.partition("?")
    shown = [_redacted(option) for option in query.split("&")]
    return f"{scheme}{separator}{place}{question}{'&'.join(shown)}"


def _redacted(option: str) -> str:
    name, equals, _ = option.partition("=")
    return f"{name}=…" if equals and is_secret(name) else option
