"""The STORE setting as connection settings: every form, and what is wrong with a bad one."""

from __future__ import annotations

import ssl
import subprocess
import sys
import traceback
from typing import Any

import pytest
import redis
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from redis.sentinel import SentinelConnectionPool, SentinelManagedSSLConnection

from django_jobs.conf.store_address import SCHEMES
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.addresses import (
    CONNECT_TIMEOUT,
    SOCKET_TIMEOUT,
    cluster_from_setting,
    pool_from_setting,
    redacted,
)
from django_jobs.stores.redis.connection.options import _allowed, connection_class

CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": "redis://cache.example:6390/3",
        "OPTIONS": {"SOCKET_TIMEOUT": 90, "PASSWORD": "from-options", "CONNECTION_POOL_KWARGS": {"max_connections": 2}},
    },
    "local": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
}


def kwargs_of(setting: str) -> dict[str, Any]:
    pool = pool_from_setting(setting)
    return dict(pool.connection_kwargs)


def test_a_url_says_where_and_who() -> None:
    kwargs = kwargs_of("redis://worker:s3cret@redis.example:6380/5")
    assert (kwargs["host"], kwargs["port"], kwargs["db"]) == ("redis.example", 6380, 5)
    assert (kwargs["username"], kwargs["password"]) == ("worker", "s3cret")


def test_timeouts_let_an_enqueue_end_within_five_seconds_and_a_wait_within_two() -> None:
    kwargs = kwargs_of("redis://localhost")
    assert kwargs["socket_timeout"] == SOCKET_TIMEOUT > 2
    assert kwargs["socket_connect_timeout"] + kwargs["socket_timeout"] < 5
    assert kwargs["socket_connect_timeout"] == CONNECT_TIMEOUT


def test_the_client_never_resends_by_itself() -> None:
    kwargs = kwargs_of("redis://localhost")
    assert kwargs["retry"]._retries == 0
    assert kwargs["retry_on_error"] == []


def test_tls_and_unix_sockets_have_their_own_connections() -> None:
    assert issubclass(pool_from_setting("rediss://localhost").connection_class, redis.SSLConnection)
    pool = pool_from_setting("unix:///run/redis.sock?db=2")
    assert issubclass(pool.connection_class, redis.UnixDomainSocketConnection)
    assert (pool.connection_kwargs["path"], pool.connection_kwargs["db"]) == ("/run/redis.sock", 2)


@pytest.mark.accepts("G23")
def test_sentinels_are_named_with_their_service() -> None:
    pool = pool_from_setting("redis+sentinel://:pw@one:26379,two/orders/4")
    assert isinstance(pool, SentinelConnectionPool)
    assert (pool.service_name, pool.connection_kwargs["db"], pool.connection_kwargs["password"]) == ("orders", 4, "pw")
    manager = pool.sentinel_manager
    found = [
        (s.connection_pool.connection_kwargs["host"], s.connection_pool.connection_kwargs["port"])
        for s in manager.sentinels
    ]
    assert found == [("one", 26379), ("two", 26379)]


def test_the_errors_of_sentinels_name_them_without_their_password() -> None:
    """redis-py puts the `repr` of each Sentinel into its errors."""
    pool = pool_from_setting("redis+sentinel://:pw@one:26379/orders?sentinel_username=me&sentinel_password=hidden")
    assert isinstance(pool, SentinelConnectionPool)
    assert [repr(sentinel) for sentinel in pool.sentinel_manager.sentinels] == ["Sentinel one:26379"]


def test_a_sentinel_url_without_a_service_is_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match="not name the service"):
        pool_from_setting("redis+sentinel://one:26379")


@pytest.mark.accepts("G12")
@override_settings(CACHES=CACHES)
def test_an_alias_gives_its_connection_but_neither_its_pool_nor_its_timeouts() -> None:
    from django_redis import get_redis_connection

    pool = pool_from_setting("cache:default")
    kwargs = pool.connection_kwargs
    assert (kwargs["host"], kwargs["port"], kwargs["db"], kwargs["password"]) == (
        "cache.example",
        6390,
        3,
        "from-options",
    )
    assert kwargs["socket_timeout"] == SOCKET_TIMEOUT
    assert pool is not get_redis_connection("default").connection_pool
    assert pool.max_connections > 1000


@override_settings(CACHES=CACHES)
@pytest.mark.parametrize("alias", ["local", "nowhere"])
def test_an_alias_that_is_no_django_redis_cache_is_refused_with_the_remedy(alias: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"django_redis\.cache\.RedisCache"):
        pool_from_setting(f"cache:{alias}")


def test_a_url_that_is_none_is_refused_without_its_password() -> None:
    with pytest.raises(ImproperlyConfigured) as told:
        pool_from_setting("redis://me:s3cret@host:notaport/0")
    assert "s3cret" not in str(told.value)


@pytest.mark.parametrize("setting", ["redis://u:p/s3cret@h:1/0", "redis+cluster://u:s3cret/x@h", "redis://h:s3cret"])
def test_a_password_that_is_not_escaped_is_not_shown_by_what_redis_py_makes_of_it(setting: str) -> None:
    with pytest.raises(ImproperlyConfigured) as told:
        Store.from_setting(setting)
    text = "".join(traceback.format_exception(told.value))
    assert "cast" not in text
    assert "s3cret" not in text.rpartition("ImproperlyConfigured: ")[2].replace("h:s3cret", "")


@pytest.mark.parametrize("kind", SCHEMES)
def test_an_option_that_an_address_cannot_have_is_named_with_the_remedy(kind: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"has the unknown option 'foo' after the .*Remove it"):
        Store.from_setting(f"{kind}://{PATHS.get(kind, 'h')}?foo=1")


PATHS = {"unix": "/r.sock", "redis+sentinel": "h/m", "rediss+sentinel": "h/m"}
#: Of an option with a value that its name or redis-py's default explains.
SAMPLES = {"ssl_cert_reqs": "none", "ssl_min_version": "TLSv1_2", "ssl_ca_path": "/", "socket_timeout": "3"}
VERIFY = {"ssl_include_verify_flags": "[VERIFY_X509_STRICT]", "ssl_exclude_verify_flags": "[VERIFY_X509_STRICT]"}
LEFT_OUT = {"ssl_validate_ocsp", "ssl_validate_ocsp_stapled"}  # they need a package more, or exclude each other


def sample(name: str) -> str:
    name = name.removeprefix("sentinel_")
    return __file__ if name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile") else {**SAMPLES, **VERIFY}.get(name, "1")


@pytest.mark.parametrize("kind", SCHEMES)
def test_every_option_that_is_offered_is_one_of_the_client(kind: str) -> None:
    names = [name for name, _ in _allowed(kind) if name.removeprefix("sentinel_") not in LEFT_OUT]
    assert {"socket_timeout", "health_check_interval", "client_name", "username", "password"} <= set(names)
    setting = f"{kind}://{PATHS.get(kind, 'h')}?" + "&".join(f"{name}={sample(name)}" for name in names)
    if "cluster" in kind:
        cluster_from_setting(setting)
        return
    pool = pool_from_setting(setting)
    pools = [each.connection_pool for each in pool.sentinel_manager.sentinels] if "sentinel" in kind else []
    for each in (pool, *pools):
        connection = each.make_connection()
        assert connection.socket_timeout == 3
        assert connection.health_check_interval == 1
        assert isinstance(connection, connection_class(kind)) or "sentinel_ssl" in names


def test_values_have_the_types_that_redis_py_gives_them() -> None:
    kwargs = kwargs_of(
        "rediss://h?db=3&socket_timeout=2.5&socket_keepalive=no&ssl_check_hostname=0&ssl_min_version=771"
    )
    assert (kwargs["db"], kwargs["socket_timeout"]) == (3, 2.5)
    assert kwargs["socket_keepalive"] is False
    assert kwargs["ssl_check_hostname"] is False
    assert kwargs["ssl_min_version"] is ssl.TLSVersion.TLSv1_2


def test_without_a_certificate_that_is_checked_no_name_is_compared() -> None:
    """redis-py 6.0 cannot connect with `ssl_cert_reqs=none` alone."""
    assert kwargs_of("rediss://h?ssl_cert_reqs=none")["ssl_check_hostname"] is False
    assert kwargs_of("rediss://h?ssl_cert_reqs=required").get("ssl_check_hostname", True) is True
    for options, primary, sentinel in (
        ("ssl_cert_reqs=none", False, False),
        ("ssl_cert_reqs=none&sentinel_ssl_cert_reqs=required", False, True),
        ("sentinel_ssl_cert_reqs=none", True, False),
    ):
        pool = pool_from_setting(f"rediss+sentinel://h/m?{options}")
        (asked,) = pool.sentinel_manager.sentinels
        kwargs = (pool.connection_kwargs, asked.connection_pool.connection_kwargs)
        assert [each.get("ssl_check_hostname", True) for each in kwargs] == [primary, sentinel], options


@pytest.mark.accepts("G23")
def test_sentinels_have_users_and_certificates_of_their_own() -> None:
    setting = "rediss+sentinel://me:a%2Fb@one,two:5/orders/4?sentinel_username=s&sentinel_password=p%26w"
    pool = pool_from_setting(f"{setting}&ssl_ca_path=/&sentinel_ssl_check_hostname=no&client_name=shop")
    assert issubclass(pool.connection_class, SentinelManagedSSLConnection)
    kwargs = pool.connection_kwargs
    assert (kwargs["username"], kwargs["password"], kwargs["db"]) == ("me", "a/b", 4)
    assert (kwargs["client_name"], kwargs["ssl_ca_path"]) == ("shop", "/")
    for sentinel in pool.sentinel_manager.sentinels:
        assert sentinel.connection_pool.connection_class.__mro__[1] is redis.SSLConnection
        kwargs = sentinel.connection_pool.connection_kwargs
        assert (kwargs["username"], kwargs["password"], kwargs["ssl_ca_path"]) == ("s", "p&w", "/")
        assert kwargs["ssl_check_hostname"] is False
        assert kwargs["retry"]._retries == 0
        assert not {"db", "client_name", "ssl"} & kwargs.keys()


@override_settings(
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://orders/3",
            "OPTIONS": {
                "CLIENT_CLASS": "django_redis.client.SentinelClient",
                "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
                "SENTINELS": [("one", 26379)],
                "SENTINEL_KWARGS": {"password": "pw", "ssl": True},
                "CONNECTION_POOL_KWARGS": {"ssl": True, "ssl_ca_path": "/"},
            },
        }
    }
)
def test_an_alias_with_sentinels_keeps_their_password_and_tls_and_not_their_timeouts() -> None:
    pool = pool_from_setting("cache:default")
    assert isinstance(pool, SentinelConnectionPool)
    assert issubclass(pool.connection_class, SentinelManagedSSLConnection)
    assert (pool.service_name, pool.connection_kwargs["db"], pool.connection_kwargs["ssl_ca_path"]) == (
        "orders",
        3,
        "/",
    )
    (sentinel,) = pool.sentinel_manager.sentinels
    kwargs = sentinel.connection_pool.connection_kwargs
    assert issubclass(sentinel.connection_pool.connection_class, redis.SSLConnection)
    assert (kwargs["host"], kwargs["password"], kwargs["socket_timeout"]) == ("one", "pw", SOCKET_TIMEOUT)
    pool.make_connection()


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("redis://me:s3cret@host:1/0", "redis://…@host:1/0"),
        ("redis://host:1/0", "redis://host:1/0"),
        ("redis://host:1/0?password=s3cret", "redis://host:1/0?password=…"),
        ("redis://host:1/0?username=me&password=s3cret&x=1", "redis://host:1/0?username=…&password=…&x=1"),
        ("redis+sentinel://h/m?sentinel_password=s3cret&db=1", "redis+sentinel://h/m?sentinel_password=…&db=1"),
        ("rediss://h?ssl_password=s3cret", "rediss://h?ssl_password=…"),
        ("redis://h?pass%77ord=s3cret", "redis://h?pass%77ord=…"),
        ("redis+cluster://me:s3cret@a,b:1?x=1", "redis+cluster://…@a,b:1?x=1"),
        ("cache:default", "cache:default"),
    ],
)
def test_addresses_are_shown_without_user_and_password(setting: str, shown: str) -> None:
    assert redacted(setting) == shown


#: Prints the modules that the first connection imports.  Nobody listens on port 1.
FIRST_CONNECTION = """
import sys
from contextlib import suppress
import redis
from django_jobs.stores.redis.connection.addresses import pool_from_setting
pool = pool_from_setting(sys.argv[1])
before = set(sys.modules)
with suppress(redis.ConnectionError):
    pool.get_connection()
print(*sorted(set(sys.modules) - before))
"""


@pytest.mark.parametrize("setting", ["redis://localhost:1", "rediss://localhost:1", "unix:///nowhere"])
def test_the_first_connection_imports_nothing(setting: str) -> None:
    """A fork copies the lock of a module that another thread imports at this moment, and no thread of the copy releases
    it: the copy's own first connection would wait for ever."""
    ran = subprocess.run(
        [sys.executable, "-c", FIRST_CONNECTION, setting], capture_output=True, text=True, timeout=240, check=True
    )
    assert ran.stdout.strip() == ""
