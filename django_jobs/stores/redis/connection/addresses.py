"""The STORE setting → how to reach Redis: a URL, or the connection settings of a django-redis alias.

The store always makes its own pool: django-redis shares one pool among aliases of one URL, with the options of the
first alias, and an alias made for a cache may have timeouts that break a waiting worker.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import redis
from django.core.exceptions import ImproperlyConfigured
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from django_jobs.conf.store_address import option_problem

#: Seconds.  Connecting and one read stay below the 5 s in which enqueue() promises an answer; the read timeout is
#: longer than the longest blocking wait (2 s).
CONNECT_TIMEOUT = 1.5
SOCKET_TIMEOUT = 3.0
#: The Cluster client tries to read twice from a node that does not answer.
CLUSTER_TIMEOUT = 2.4

#: Retry(…, 0): the store repeats calls itself, and only those that may be sent twice.  RESP2: the same replies from
#: every server version.
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

#: Entries of connection_kwargs that redis-py keeps for itself, or that would undo OURS.
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
    refuse_unknown_options(setting)
    if setting.startswith("redis+sentinel://"):
        return _pool_from_sentinels(setting)
    try:
        ours = _without_tcp(OURS) if setting.startswith("unix://") else OURS
        return redis.ConnectionPool.from_url(setting, max_connections=2**31, **ours, **_no_retry())
    except ValueError as error:
        raise ImproperlyConfigured(f"DJANGO_JOBS['STORE'] is {redacted(setting)!r}: {error}") from error


def _pool_from_alias(alias: str) -> redis.ConnectionPool:
    from django.core.cache import InvalidCacheBackendError
    from django_redis import get_redis_connection

    try:
        pool = get_redis_connection(alias).connection_pool
    except (InvalidCacheBackendError, NotImplementedError) as error:
        raise ImproperlyConfigured(
            f"DJANGO_JOBS['STORE'] is 'cache:{alias}', but CACHES[{alias!r}] is not a django-redis cache ({error}). "
            "Use an alias with BACKEND 'django_redis.cache.RedisCache', or a URL."
        ) from error
    kwargs = {k: v for k, v in pool.connection_kwargs.items() if k not in NOT_TO_COPY} | OURS | _no_retry()
    if issubclass(pool.connection_class, redis.UnixDomainSocketConnection):
        kwargs = _without_tcp(kwargs)
    if isinstance(pool, SentinelConnectionPool):
        return SentinelConnectionPool(pool.service_name, pool.sentinel_manager, **kwargs)
    return redis.ConnectionPool(connection_class=pool.connection_class, max_connections=2**31, **kwargs)


def _pool_from_sentinels(setting: str) -> redis.ConnectionPool:
    """redis+sentinel://[user:password@]host:port,host:port/service[/db]"""
    parts = urlsplit(setting)
    credentials, _, hosts = parts.netloc.rpartition("@")
    service, _, db = parts.path.strip("/").partition("/")
    if not service:
        raise ImproperlyConfigured(
            f"DJANGO_JOBS['STORE'] is {redacted(setting)!r}: name the service, "
            "as in 'redis+sentinel://host1:26379,host2:26379/mymaster/0'."
        )
    user, _, password = credentials.partition(":")
    kwargs = OURS | _no_retry() | {"db": int(db or 0)}
    kwargs |= {k: unquote(v) for k, v in (("username", user), ("password", password)) if v}
    sentinel = Sentinel([_host_port(host, 26379) for host in hosts.split(",")], sentinel_kwargs=OURS | _no_retry())
    return SentinelConnectionPool(service, sentinel, **kwargs)


def _host_port(text: str, default: int) -> tuple[str, int]:
    host, _, port = text.partition(":")
    return host, int(port or default)


def cluster_from_setting(setting: str) -> Callable[[], redis.RedisCluster]:
    """redis+cluster://[user:password@]host:port[,host:port…] → a maker of clients."""
    from redis.cluster import ClusterNode

    refuse_unknown_options(setting)
    parts = urlsplit(setting)
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    extra: dict[str, Any] = {k: unquote(v) for k, v in (("username", user), ("password", password)) if v}
    nodes = [ClusterNode(*_host_port(host, 6379)) for host in hosts.split(",")]
    ours = {k: v for k, v in OURS.items() if k != "health_check_interval"} | {"socket_timeout": CLUSTER_TIMEOUT}
    # One repeat, because only then does the client take another node for commands without a key.
    retry = Retry(NoBackoff(), 1)
    return lambda: redis.RedisCluster(startup_nodes=nodes, retry=retry, max_connections=2**31, **ours, **extra)


def refuse_unknown_options(setting: str) -> None:
    """Raise ImproperlyConfigured for unknown options: redis-py would raise a bare TypeError at the first command, and
    the parsers here ignore them."""
    if problem := option_problem(setting):
        raise ImproperlyConfigured(f"DJANGO_JOBS['STORE'] is {redacted(setting)!r}: it {problem[0]}. {problem[1]}")


def redacted(setting: str) -> str:
    """Return the setting in a form that may be shown: without user and password."""
    scheme, separator, rest = setting.partition("://")
    shown = f"{scheme}{separator}…@{rest.rpartition('@')[2]}" if "@" in rest else setting
    return re.sub(r"([?&](?:username|password)=)[^&]*", r"\1…", shown)
