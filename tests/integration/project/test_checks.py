"""System checks: each id, and that a good project has none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test import override_settings

from django_jobs.checks import check_jobs, check_modules, check_private_server, check_settings
from django_jobs.conf import get_settings
from django_jobs.conf.store_address import check_deployment
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.enqueueing.submit import enqueue_by_name
from django_jobs.stores import get_store, use_store

CACHES = {
    "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:6379/1"},
    "local": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
}


def passing(get_next: Any) -> Any:
    return get_next


def task() -> None: ...


class Authorizer:
    def authorize(self, request: Any) -> None: ...


class NoAuthorizer: ...


class Unready:
    def __init__(self) -> None:
        raise RuntimeError("not yet")

    def authorize(self, request: Any, permission: str) -> bool:
        return True


async def awaited(request: Any) -> None: ...


def takes_two(request: Any, permission: str) -> None: ...


def takes_one(request: Any) -> None: ...


def task_of(shop: int) -> None: ...


not_callable = "text"


@contextmanager
def registered(func: Callable[..., Any], **options: Any) -> Iterator[None]:
    registry.register(JobDefinition(func, name="tests.checked", **options))
    try:
        yield
    finally:
        registry.unregister("tests.checked")


def found(settings: Any, check: Callable[[], list[checks.CheckMessage]] = check_settings, **others: Any) -> list[str]:
    with override_settings(DJANGO_JOBS=settings, **others):
        return [f"{message.id}: {message.msg} {message.hint}" for message in check()]


class TestOutbox:
    ON: ClassVar = {"STORE": "redis://localhost:6379/0", "OUTBOX": True}

    def test_what_does_not_fit_it_is_named(self) -> None:
        assert found(self.ON) == []
        (eager,) = found(self.ON | {"EAGER": True})
        assert eager.startswith("django_jobs.W007: DJANGO_JOBS['OUTBOX'] has no effect, because EAGER is on")
        (memory,) = found(self.ON | {"STORE": "memory"})
        assert memory.startswith("django_jobs.W007: DJANGO_JOBS['OUTBOX'] is on, and STORE is 'memory'")
        assert found({"STORE": "memory", "EAGER": True, "OUTBOX": False}) == []
        assert found(self.ON | {"IDEMPOTENCY": 60, "ON_COMMIT": True}) == []
        (short,) = found(self.ON | {"IDEMPOTENCY": 59})
        assert short.startswith("django_jobs.W009: DJANGO_JOBS['IDEMPOTENCY'] is 59, and OUTBOX is on")
        (unkept,) = found(self.ON | {"ON_COMMIT": False})
        assert unkept.startswith("django_jobs.W010: DJANGO_JOBS['OUTBOX'] keeps nothing, because ON_COMMIT is False")
        assert found({"STORE": "redis://localhost:6379/0", "IDEMPOTENCY": 1, "ON_COMMIT": False}) == []
        (wrong,) = found(self.ON | {"OUTBOX": "sometimes"})
        assert wrong.startswith("django_jobs.E003")

    @pytest.mark.filterwarnings("ignore:Overriding setting DATABASES")
    def test_async_views_that_it_does_not_keep_are_named(self) -> None:
        atomic = {"DATABASES": {"default": {"ATOMIC_REQUESTS": True}}}
        assert found(self.ON, **atomic) == []
        (said,) = found(self.ON, ASGI_APPLICATION="shop.asgi.application", **atomic)
        assert said.startswith("django_jobs.W008")
        assert found(self.ON | {"OUTBOX": "always"}, ASGI_APPLICATION="shop.asgi.application", **atomic) == []

    @pytest.mark.django_db
    def test_a_table_that_is_missing_is_named_only_where_checks_may_ask_the_database(self) -> None:
        def missing(**databases: Any) -> list[str]:
            with override_settings(DJANGO_JOBS=self.ON):
                return [str(each.id) for each in checks.run_checks(tags=["database"], **databases)]

        assert missing(databases=["default"]) == []
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE django_jobs_outboxentry RENAME TO elsewhere")
        assert missing(databases=["default"]) == ["django_jobs.W006"]
        assert missing(databases=[]) == []


class TestPrivateServer:
    def test_a_file_of_an_older_release_and_a_missing_program_are_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        embedded = {"STORE": f"embedded:{tmp_path / 'jobs'}"}
        assert found(embedded, check_private_server) == []
        assert found({"STORE": 5}, check_private_server) == []
        (tmp_path / "jobs.sqlite3").write_bytes(b"SQLite format 3\0")
        (old,) = found(embedded, check_private_server)
        assert old.startswith("django_jobs.E018: ")
        assert str(tmp_path / "jobs.sqlite3") in old
        monkeypatch.setattr("django_jobs.stores.embedded.program._candidates", lambda: iter(()))
        for setting in (embedded, {"STORE": "memory"}):
            (missing,) = found(setting, check_private_server)
            assert "django-jobs-redis[embedded]" in missing


class TestSettings:
    @pytest.mark.accepts("G44")
    @pytest.mark.parametrize(
        ("priority", "is_good"), [(1, True), (100_000, True), (0, False), (100_001, False), (1.5, False)]
    )
    def test_priorities_of_queues_go_from_1_to_100_000(self, priority: float, is_good: bool) -> None:
        messages = found({"STORE": "memory", "QUEUES": {"default": {"PRIORITY": priority}}})
        assert (messages == []) is is_good

    @pytest.mark.parametrize(
        "settings",
        [
            {"STORE": "memory"},
            {"STORE": "redis://:secret@localhost:6379/0"},
            {"STORE": "redis+sentinel://a:26379,b:26379/mymaster/0"},
            {
                "STORE": "embedded:/srv/jobs",
                "QUEUES": {"mail": {"PRIORITY": 10, "ON_FULL": "block"}, "x": None},
            },
            {
                "STORE": "memory",
                "HISTORY": {"succeeded": 0, "ttl": 60},
                "DEAD": {"max": 10},
                "ARCHIVE": {"DAYS": 180},
                "LEASE": 5.5,
                "MIDDLEWARE": ["tests.integration.project.test_checks.passing"],
                "JOB_DEFAULTS": {"max_attempts": 3},
            },
            {"STORE": "memory", "API": {"AUTHORIZER": "tests.integration.project.test_checks.takes_one"}},
            {"STORE": "memory", "CONSOLE": {"AUTHORIZER": "tests.integration.project.test_checks.takes_two"}},
            {"STORE": "memory", "CONSOLE": {}},
            {"STORE": "memory", "API": {"AUTHORIZER": "tests.integration.project.test_checks.Authorizer"}},
        ],
        ids=str,
    )
    def test_good_settings_have_nothing_to_say(self, settings: Any) -> None:
        assert found(settings) == []

    def test_django_runs_them_and_good_jobs_pass(self, empty_registry: None) -> None:
        with override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": {"default": {}, "mail": {}}}):
            assert checks.run_checks(tags=["django_jobs"]) == []

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            (["redis://"], "E001: DJANGO_JOBS is of type list, not a dict. Write DJANGO_JOBS = {'STORE': 'redis://"),
            ({"STROE": "memory"}, "E002: DJANGO_JOBS has an unknown key 'STROE'. Did you mean 'STORE'?"),
            ({"store": "memory"}, "E002: DJANGO_JOBS has an unknown key 'store'. Did you mean 'STORE'?"),
            ({"HISTORY": {"max": 5}}, "E002: DJANGO_JOBS['HISTORY'] has an unknown key 'max'. Known: succeeded, ttl."),
            ({"API": {"AUTHORISER": "x"}}, "E002: DJANGO_JOBS['API'] has an unknown key 'AUTHORISER'. Did you mean"),
            ({"API": {"REMOTE_HOSTS": "x"}}, "E003: DJANGO_JOBS['API']['REMOTE_HOSTS'] is 'x'. Use a list of host"),
            ({"QUEUES": {"a": {"PRIO": 5}}}, "E002: DJANGO_JOBS['QUEUES']['a'] has an unknown key 'PRIO'. Did you"),
            ({"THREADS": 0}, "E003: DJANGO_JOBS['THREADS'] is 0. Use a whole number from 1 to 1024."),
            ({"THREADS": True}, "E003: DJANGO_JOBS['THREADS'] is True."),
            ({"LEASE": "30"}, "E003: DJANGO_JOBS['LEASE'] is '30'. Use seconds, from 1 to 86400."),
            ({"ON_COMMIT": "yes"}, "E003: DJANGO_JOBS['ON_COMMIT'] is 'yes'. Use True or False."),
            (
                {"QUEUE_ORDER": "random"},
                "E003: DJANGO_JOBS['QUEUE_ORDER'] is 'random'. Use one of 'weighted'",
            ),
            ({"QUEUES": ["a"]}, "E003: DJANGO_JOBS['QUEUES'] is ['a']. Use a dict, as in {'default': {}, 'mail'"),
            ({"QUEUES": {"a": 5}}, "E003: DJANGO_JOBS['QUEUES']['a'] is 5. Use a dict of options"),
            ({"QUEUES": {"a": {"PRIORITY": 0}}}, "E003: DJANGO_JOBS['QUEUES']['a']['PRIORITY'] is 0. Use a whole"),
            ({"MIDDLEWARE": "shop.timing"}, "E003: DJANGO_JOBS['MIDDLEWARE'] is 'shop.timing'. Use a list of dotted"),
            ({"NAMESPACE": "a b"}, "E003: DJANGO_JOBS['NAMESPACE'] is 'a b'. Use up to 100 printable characters"),
            (
                {"ARCHIVE": 5},
                "E003: DJANGO_JOBS['ARCHIVE'] is 5. Use a dict, as in {'DAYS': 180}. None switches it off.",
            ),
            ({"DEAD": {"ttl": "x"}}, "E003: DJANGO_JOBS['DEAD']['ttl'] is 'x'. Use seconds, from 1 to 3162240000."),
            ({"API": {"REMOTE_HOSTS": ["http://a"]}}, "E003: DJANGO_JOBS['API']['REMOTE_HOSTS'] is ['http://a']. Use"),
            ({"API": {"CREDENTIALS": {"a": {"usr": "x"}}}}, "E003: DJANGO_JOBS['API']['CREDENTIALS'] is of type dict."),
            ({"QUEUES": {"a{b}": {}}}, "E004: DJANGO_JOBS['QUEUES'] has a queue named 'a{b}'."),
            ({"QUEUES": {"a*b": {}}}, "E004: DJANGO_JOBS['QUEUES'] has a queue named 'a*b'. Use * only as the last"),
            ({"QUEUES": {"a**": {}}}, "E004: DJANGO_JOBS['QUEUES'] has a queue named 'a**'. Use * only as the last"),
            ({"QUEUES": {"a b*": {}}}, "E004: DJANGO_JOBS['QUEUES'] has a queue named 'a b*'. Use up to 100 printable"),
            (
                {"QUEUES": {"a-*": {}}, "ROUTES": {"x": "b-1"}},
                "E020: DJANGO_JOBS['ROUTES']['x'] is 'b-1', which is",
            ),
            (
                {"QUEUES": {"a-*": {}}, "ROUTES": {"x": "a-*"}},
                "E020: DJANGO_JOBS['ROUTES']['x'] is 'a-*', which is",
            ),
            ({"QUEUES": {5: {}}}, "E003: DJANGO_JOBS['QUEUES'] is {5: {}}. Use a dict, as in"),
            ({"MIDDLEWARE": ["no.such"]}, "E005: DJANGO_JOBS['MIDDLEWARE']: 'no.such' cannot be used: "),
            ({"ENQUEUE_MIDDLEWARE": ["no.such"]}, "E005: DJANGO_JOBS['ENQUEUE_MIDDLEWARE']: 'no.such' cannot be used"),
            ({"ENQUEUE_MIDDLEWARE": [f"{__name__}.not_callable"]}, "cannot be used: it is not callable"),
            ({"MIDDLEWARE": [".."]}, "E005: DJANGO_JOBS['MIDDLEWARE']: '..' cannot be used: "),
            ({"ENQUEUE_MIDDLEWARE": ["."]}, "E005: DJANGO_JOBS['ENQUEUE_MIDDLEWARE']: '.' cannot be used: "),
            ({"NOTIFY": ["no.such"]}, "E005: DJANGO_JOBS['NOTIFY']: 'no.such' cannot be used: "),
            ({"NOTIFY": [f"{__name__}.not_callable"]}, "not callable: it must take a notice. Use the dotted path"),
            ({"DATABASE": ["default"]}, "E003: DJANGO_JOBS['DATABASE'] is ['default']. Use text."),
            ({"JOB_DEFAULTS": {1: 2}}, "E006: DJANGO_JOBS['JOB_DEFAULTS']: unknown option 1. Known options: "),
            ({"API": {"AUTHORIZER": "no.such"}}, "E013: DJANGO_JOBS['API']['AUTHORIZER'] cannot be used: Module"),
            ({"API": {"AUTHORIZER": "authorize"}}, "'authorize' must be a function"),
            ({"API": {"AUTHORIZER": f"{__name__}.nobody"}}, "E013: DJANGO_JOBS['API']['AUTHORIZER'] cannot be used"),
            ({"API": {"AUTHORIZER": f"{__name__}.not_callable"}}, "'text' is neither callable nor a class with"),
            ({"API": {"AUTHORIZER": f"{__name__}.NoAuthorizer"}}, ".NoAuthorizer'> is neither callable nor a class"),
            ({"API": {"AUTHORIZER": f"{__name__}.awaited"}}, "is async, and its answer is not awaited"),
            ({"API": {"AUTHORIZER": f"{__name__}.takes_two"}}, "cannot be called with (request): missing a required"),
            ({"CONSOLE": {"AUTHORIZER": "no.such"}}, "E013: DJANGO_JOBS['CONSOLE']['AUTHORIZER'] cannot be used: Mod"),
            ({"CONSOLE": {"AUTHORIZER": f"{__name__}.awaited"}}, "is async, and its answer is not awaited"),
            (
                {"CONSOLE": {"AUTHORIZER": f"{__name__}.takes_one"}},
                "cannot be called with (request, permission): too many",
            ),
            ({"CONSOLE": {"AUTHORIZER": f"{__name__}.Unready"}}, "cannot be used: RuntimeError: not yet."),
            ({"CONSOLE": {"AUTHORISER": "x"}}, "E002: DJANGO_JOBS['CONSOLE'] has an unknown key 'AUTHORISER'. Did you"),
            ({"CONSOLE": None}, "E003: DJANGO_JOBS['CONSOLE'] is None. Use a dict, as in"),
            ({"API": {"AUTHORIZER": 5}}, "E003: DJANGO_JOBS['API']['AUTHORIZER'] is 5. Use text."),
            ({"JOB_DEFAULTS": {"atempts": 5}}, "E006: DJANGO_JOBS['JOB_DEFAULTS']: unknown option 'atempts'."),
            ({"JOB_DEFAULTS": {"timeout": 0}}, "E006: DJANGO_JOBS['JOB_DEFAULTS']: timeout=0: use a duration"),
            ({"JOB_DEFAULTS": {"cron": "* * * * *"}}, "E006: DJANGO_JOBS['JOB_DEFAULTS']: unknown option 'cron'."),
            ({"STORE": ""}, "E007: DJANGO_JOBS['STORE'] is missing; without DEBUG there is no default."),
            ({"STORE": "postgres://u:pw@h/db"}, "E007: DJANGO_JOBS['STORE'] starts with 'postgres'"),
            ({"STORE": 5}, "E003: DJANGO_JOBS['STORE'] is of type int. Use text, as in 'redis://localhost:6379/0'"),
            (
                {"STORE": "redis:localhost"},
                "E007: DJANGO_JOBS['STORE'] is a 'redis' address that has no // after",
            ),
            (
                {"STORE": "redis://h:port/0"},
                "E007: DJANGO_JOBS['STORE'] is a 'redis' address that has a port that is",
            ),
            ({"STORE": "redis://h/zero"}, "that does not end in the number of a database. Write 'redis://user:"),
            (
                {"STORE": "redis://a,b/0"},
                "that names several hosts, which only redis+sentinel and redis+cluster allow.",
            ),
            ({"STORE": "redis://h:6379/0 "}, "that has a space or # in it."),
            ({"STORE": "unix://redis.sock"}, "that has no path. Write 'unix:///run/redis/redis.sock?db=0'"),
            ({"STORE": "redis://h/0?foo=1"}, "E007: DJANGO_JOBS['STORE'] has the unknown option 'foo' after the ?."),
            ({"STORE": "unix:///r.sock?socket_keepalive=1"}, "the unknown option 'socket_keepalive' after the ?."),
            ({"STORE": "redis+cluster://a:1?db=1"}, "'db' after the ?. Remove it. A Cluster has only one database."),
            ({"STORE": "redis+cluster://a:1?ssl_ca_certs=/ca"}, "For TLS, write rediss+cluster://…"),
            ({"STORE": "redis+sentinel://a:1/m?retry_on_timeout=1"}, "unknown option 'retry_on_timeout' after"),
            ({"STORE": "redis+sentinel://a:1,/m"}, "that lacks the name of a host. Write 'redis+sentinel://user:"),
            (
                {"STORE": "redis://h?socket_timeout=soon"},
                "has the option 'socket_timeout' with the bad value 'soon' after the ?. Use a number of seconds from",
            ),
            (
                {"STORE": "redis+cluster://h?socket_timeout=1"},
                "bad value '1' after the ?. Use a number of seconds from 2.4",
            ),
            ({"STORE": "redis://h?socket_keepalive=off"}, "with the bad value 'off' after the ?. Use yes or no."),
            ({"STORE": "redis://h?client_name="}, "Use a value after the =, or leave the option out."),
            ({"STORE": "rediss://h?ssl_cert_reqs=maybe"}, "'maybe' after the ?. Use none, optional or required."),
            (
                {"STORE": "rediss+sentinel://h/m?sentinel_ssl_keyfile=/no.key"},
                "bad value '/no.key' after the ?. Use the",
            ),
            (
                {"STORE": "redis+sentinel://a:1,b:1"},
                "that does not name the service. Write 'redis+sentinel://user:password@host1:26379",
            ),
            ({"STORE": "redis+sentinel://a:1/m/x"}, "that does not end in the number of a database."),
            ({"STORE": "redis+cluster://a:1/3"}, "that names a database, although a Cluster has only one."),
            ({"DATABASE": "jobs"}, "E008: DJANGO_JOBS['DATABASE'] is 'jobs', which is not in DATABASES."),
            ({"STORE": "cache:nowhere"}, "E012: DJANGO_JOBS['STORE'] is 'cache:nowhere', but CACHES has no 'nowhere'."),
            (
                {"STORE": "cache:local"},
                "E012: DJANGO_JOBS['STORE'] is 'cache:local', whose backend is 'django.core",
            ),
            ({"STORE": "cache:default"}, "W001: The jobs are in the same Redis database as CACHES['default']"),
            ({"STORE": "redis://localhost/1"}, "W001: The jobs are in the same Redis database as CACHES['default']"),
        ],
        ids=str,
    )
    def test_a_bad_value_has_an_id_and_a_remedy(self, settings: Any, expected: str) -> None:
        settings = {"STORE": "memory", **settings} if isinstance(settings, dict) else settings
        messages = found(settings, CACHES=CACHES)
        assert any(expected in message for message in messages), messages

    @pytest.mark.parametrize(
        ("store", "cache", "is_true"),
        [
            ("redis://h/1", {"LOCATION": "redis://h:6379/1"}, True),
            ("redis://h/1", {"LOCATION": "redis://h:6379/0"}, False),
            # The database of a cache stands in its address, after the ?, or in its options; in this order.
            ("redis://h/0", {"LOCATION": "redis://h:6379", "OPTIONS": {"db": 1}}, False),
            ("redis://h/1", {"LOCATION": "redis://h:6379", "OPTIONS": {"db": 1}}, True),
            ("redis://h/0", {"LOCATION": "redis://h", "OPTIONS": {"CONNECTION_POOL_KWARGS": {"db": "1"}}}, False),
            ("redis://h/1", {"LOCATION": "redis://h", "OPTIONS": {"CONNECTION_POOL_KWARGS": {"db": "1"}}}, True),
            ("redis://h/0", {"LOCATION": "redis://h/0?db=1"}, False),
            ("redis://h?db=1", {"LOCATION": "redis://h/1", "OPTIONS": {"db": 2}}, True),
            ("unix:///r.sock?db=0", {"LOCATION": "unix:///r.sock?password=x"}, True),
            ("unix:///r.sock?db=1", {"LOCATION": "unix:///r.sock"}, False),
            ("redis://h/0", {"LOCATION": ["redis://g", "redis://h"]}, True),
            (
                "redis://h/0",
                {"LOCATION": "redis://h", "BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
                False,
            ),
            # An alias of the jobs alone is no cache, until Django or a second alias uses its database.
            ("cache:jobs", {"LOCATION": "redis://h/1"}, False),
            ("cache:default", {"LOCATION": "redis://h/1"}, True),
            ("cache:jobs", {"LOCATION": "redis://h/2"}, True),
        ],
    )
    def test_jobs_beside_a_cache_are_warned_of_where_that_is_so(
        self, store: str, cache: dict[str, Any], is_true: bool
    ) -> None:
        redis = {"BACKEND": "django_redis.cache.RedisCache"}
        caches = {"default": {**redis, **cache}, "jobs": {**redis, "LOCATION": "redis://h/2"}}
        messages = found({"STORE": store}, CACHES=caches)
        assert [message.split(":")[0] for message in messages] == ["django_jobs.W001"] * is_true, messages

    def test_sessions_in_the_alias_of_the_jobs_are_warned_of(self) -> None:
        redis = {"BACKEND": "django_redis.cache.RedisCache"}
        caches = {"default": CACHES["local"], "jobs": {**redis, "LOCATION": "redis://h/2"}}
        engine = "django.contrib.sessions.backends.cache"
        assert found({"STORE": "cache:jobs"}, CACHES=caches, SESSION_ENGINE=engine) == []
        used = {"SESSION_ENGINE": engine, "SESSION_CACHE_ALIAS": "jobs"}
        assert "CACHES['jobs']" in found({"STORE": "cache:jobs"}, CACHES=caches, **used)[0]

    @pytest.mark.parametrize("settings", ["redis://u:pw@h/0", None, {"QUEUES": ["mail"]}, {"HISTORY": 1000}], ids=str)
    def test_settings_that_cannot_be_read_send_to_the_checks(self, settings: Any) -> None:
        with (
            override_settings(DJANGO_JOBS=settings),
            pytest.raises(ImproperlyConfigured, match=r"DJANGO_JOBS cannot be read.*manage.py check"),
        ):
            get_settings()

    @pytest.mark.parametrize(
        "settings",
        [
            "redis://u:pw@h/0",
            {"STORE": "postgres://u:pw@h/db"},
            {"STORE": ["redis://u:pw@h/0"]},
            {"STORE": "redis://u:pw/#@h:6379/0"},
            {"STORE": "redis://u:p/pw@h:6379/0"},
            {"STORE": "redis://:12?pw=3@h:6379/0"},
            {"STORE": "redis://u:p/0@h:pw/0"},
            {"STORE": "rediss://h?ssl_password=pw&x=1"},
            {"STORE": "redis+sentinel://h/m?sentinel_password=pw&socket_timeout=0"},
            {"API": {"CREDENTIALS": {"media": "pw"}}},
            {"API": ["pw"]},
        ],
        ids=str,
    )
    def test_no_password_is_shown(self, settings: Any) -> None:
        messages = str(found(settings))
        assert "django_jobs.E" in messages
        assert "pw" not in messages

    @pytest.mark.parametrize(
        "store",
        [
            "redis://",
            "redis://localhost",
            "redis://:p%2Fw@localhost:6379/15?socket_keepalive=1",
            "redis://u:a:b@@[::1]:6379/0/",
            "rediss://host/",
            "rediss://host/0?ssl_cert_reqs=none&client_name=shop",
            "unix:///run/redis.sock?db=3",
            "unix://u:p@/run/redis.sock",
            "redis+sentinel://u:p@a,b:26379/mymaster",
            "redis+cluster://u:p@a:7000,b:7001",
            "redis+cluster://a:7000/0",
            "rediss+sentinel://u:p@a,[::1]:26379/mymaster/0?sentinel_username=s&sentinel_password=p&sentinel_ssl=no&db=2",
            "rediss+cluster://u:p@a:7000,b:7001?health_check_interval=30&socket_timeout=4&ssl_check_hostname=no",
        ],
    )
    def test_every_kind_of_address_passes(self, store: str) -> None:
        assert found({"STORE": store}) == []

    def test_with_debug_the_store_has_a_default(self) -> None:
        assert found({}, DEBUG=True) == []

    def test_another_database_of_the_same_server_is_no_problem(self) -> None:
        assert found({"STORE": "redis://localhost:6379/0"}, CACHES=CACHES) == []


class TestRoutes:
    def test_a_queue_that_is_not_there_is_named(self) -> None:
        (message,) = found({"STORE": "memory", "QUEUES": {"slow": {}}, "ROUTES": {"shop.*": "slw"}})
        assert "E020: DJANGO_JOBS['ROUTES']['shop.*'] is 'slw', which is not in QUEUES." in message
        assert "'slow'" in message

    @pytest.mark.parametrize("routes", [["shop.*"], {"shop.*": 7}, {"": "slow"}])
    def test_other_values_are_refused(self, routes: Any) -> None:
        assert "E003" in str(found({"STORE": "memory", "QUEUES": {"slow": {}}, "ROUTES": routes}))


class TestJobs:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"queue": "mail"}, "E009: Its queue 'mail' is not in DJANGO_JOBS['QUEUES']. Known: default."),
            ({"on_end": "tests.chekced"}, "E019: tests.checked cannot be enqueued: No job is named 'tests.chekced'."),
            ({"cron": "61 * * * *"}, "E010: The job tests.checked has an impossible schedule"),
            ({"cron": "0 0 30 2 *"}, "E010: The job tests.checked has an impossible schedule"),
        ],
        ids=str,
    )
    def test_a_job_that_does_not_fit_is_named(self, options: Any, expected: str) -> None:
        with registered(task, **options):
            assert any(expected in message for message in found({"STORE": "memory"}, check_jobs))

    def test_a_job_with_cron_needs_no_argument(self, empty_registry: None) -> None:
        with registered(task_of, cron="0 3 * * *"):
            (message,) = found({"STORE": "memory"}, check_jobs)
        assert message.startswith(
            "django_jobs.E014: It has cron=…, and a schedule passes no arguments. tests.checked(shop"
        )
        assert "or write an entry of DJANGO_JOBS['SCHEDULES']" in message

    def test_a_key_without_a_limit_limits_nothing(self, empty_registry: None) -> None:
        with registered(task_of, concurrency_key="shop"):
            (message,) = found({"STORE": "memory"}, check_jobs)
            assert message.startswith("django_jobs.W003: Its concurrency_key limits nothing without max_concurrency.")
            assert found({"STORE": "memory", "JOB_DEFAULTS": {"max_concurrency": 2}}, check_jobs) == []

    def test_a_warning_about_the_settings_hides_no_error_of_a_job(self, empty_registry: None) -> None:
        with registered(task, queue="mail"):
            assert "E009" in str(found({"STORE": "cache:default"}, check_jobs, CACHES=CACHES))

    @pytest.mark.parametrize(
        ("schedule", "expected"),
        [
            (
                "nightly",
                "E011: DJANGO_JOBS['SCHEDULES']['s'] is 'nightly'. It needs at least 'job', and 'cron', 'every'",
            ),
            (
                {"job": "no.such", "cron": "* * * * *"},
                "E011: DJANGO_JOBS['SCHEDULES']['s']: No job is named 'no.such'",
            ),
            ({"job": "no.such", "cron": "x"}, "E010: DJANGO_JOBS['SCHEDULES']['s'] has an impossible schedule"),
        ],
        ids=str,
    )
    def test_a_schedule_that_does_not_fit_is_named(self, schedule: Any, expected: str) -> None:
        messages = found({"STORE": "memory", "SCHEDULES": {"s": schedule}}, check_jobs)
        assert any(expected in message for message in messages), messages

    def test_jobs_wait_until_the_settings_are_right(self) -> None:
        assert found(["no dict"], check_jobs) == []


class TestDeployment:
    def test_settings_for_tests_are_named_before_they_are_deployed(self) -> None:
        messages = found({"STORE": "memory", "EAGER": True}, check_deployment)
        assert [message[:4] for message in (m.removeprefix("django_jobs.") for m in messages)] == ["W002", "W002"]
        assert found({"STORE": "redis://localhost/0"}, check_deployment) == []


class TestModules:
    def test_what_is_not_imported_at_the_start_is_named_with_the_remedy(self):
        with registered(task):
            (message,) = [text for text in found({"STORE": "memory"}, check_modules) if f"{__name__}.task " in text]
        assert "W004" in message
        assert f"'MODULES'] = ['jobs', 'tasks', '{__name__}']" in message

    def test_what_is_registered_at_the_start_is_not(self, monkeypatch):
        monkeypatch.setattr(registry.apps, "ready", False)
        with registered(task):
            assert not [text for text in found({"STORE": "memory"}, check_modules) if f"{__name__}.task " in text]

    def test_a_module_that_is_not_there_is_named(self):
        (message,) = [text for text in found({"MODULES": ["jobs", "shop.nothing"]}, check_modules) if "E017" in text]
        assert "'shop.nothing'" in message

    def test_views_are_imported_first(self, settings):
        settings.ROOT_URLCONF = "tests.integration.late_urls"
        sys.modules.pop("tests.integration.late_urls", None)
        try:
            assert any("late_urls.only_a_view_imports_it" in text for text in found({}, check_modules))
        finally:
            registry.unregister("tests.integration.late_urls.only_a_view_imports_it")

    def test_enqueueing_it_says_so_once(self, caplog, tmp_path):
        store = f"embedded:{tmp_path / 'store'}"
        with registered(task), override_settings(DJANGO_JOBS={"STORE": store}):
            use_store(None)
            try:
                for _ in range(2):
                    enqueue_by_name("tests.checked")
            finally:
                get_store().close()
                use_store(None)
        (said,) = [record.getMessage() for record in caplog.records if record.name == "django_jobs"]
        assert f"Workers may not find tests.checked: its module {__name__} is not imported" in said


def test_every_id_is_documented() -> None:
    root = Path(__file__).parents[3]
    page = (root / "docs" / "reference" / "checks.md").read_text()
    for number in [f"E{n:03}" for n in range(1, 15)] + ["W001", "W002", "W003"]:
        assert f"django_jobs.{number}" in page
