"""The STORE setting as connection settings: every form, and what is wrong with a bad one."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from redis.sentinel import SentinelConnectionPool

from django_jobs.conf.store_address import _OPTIONS
from django_jobs.stores.redis import RedisStore
from django_jobs.stores.redis.connection.addresses import CONNECT_TIMEOUT, SOCKET_TIMEOUT, pool_from_setting, redacted

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


def test_a_sentinel_url_without_a_service_is_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match="name the service"):
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


@pytest.mark.parametrize("address", ["redis://h/0", "unix:///r.sock", "redis+sentinel://h/m", "redis+cluster://h"])
def test_an_option_that_an_address_cannot_have_is_named_with_the_remedy(address: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"has the unknown option 'foo' after the .*Remove it"):
        RedisStore.from_setting(f"{address}?foo=1")


def test_every_option_that_is_offered_is_one_of_the_client() -> None:
    for kind, options in _OPTIONS.items():
        path = "/r.sock" if kind == "unix" else "h/0"
        query = "&".join(f"{name}={'none' if name == 'ssl_cert_reqs' else 1}" for name in options)
        pool_from_setting(f"{kind}://{path}?{query}").make_connection()


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("redis://me:s3cret@host:1/0", "redis://…@host:1/0"),
        ("redis://host:1/0", "redis://host:1/0"),
        ("redis://host:1/0?password=s3cret", "redis://host:1/0?password=…"),
        ("redis://host:1/0?username=me&password=s3cret&x=1", "redis://host:1/0?username=…&password=…&x=1"),
        ("cache:default", "cache:default"),
    ],
)
def test_addresses_are_shown_without_user_and_password(setting: str, shown: str) -> None:
    assert redacted(setting) == shown
