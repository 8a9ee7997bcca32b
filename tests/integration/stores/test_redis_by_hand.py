"""What redis-cli shows, and what the server is asked: keys as documented, known commands, scripts by their hash."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis

from django_jobs.core.values import Attempt, Completed
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection import scripts
from django_jobs.stores.redis.connection.keys import QUEUE_KEYS
from tests.docs.pages import ROOT

#: Commands of Redis 6.2 that we use.  Before one is added: is it in 6.2, with the options it is given?
_WORDS = """
APPEND BITFIELD BLPOP DEL EVAL EVALSHA EXISTS GET HDEL HEXISTS HGET HGETALL HINCRBY HKEYS HLEN HMGET HSCAN HSET HSETNX
HVALS INCR INCRBY INFO LINDEX LLEN LRANGE LREM LTRIM PEXPIRE PING PTTL RENAME RPOP RPUSH SADD SET SMEMBERS TIME TYPE
XADD XREAD XREVRANGE ZADD ZCARD ZCOUNT ZLEXCOUNT ZMSCORE ZPOPMIN ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZREM
ZREMRANGEBYRANK ZREVRANGE ZREVRANGEBYLEX ZSCAN ZSCORE
"""
KNOWN = frozenset(_WORDS.split())
LUA = ROOT / "django_jobs" / "stores" / "redis" / "lua"


@pytest.mark.accepts("R21")
@pytest.mark.parametrize("path", sorted(LUA.rglob("*.lua")), ids=lambda path: path.stem)
def test_scripts_call_commands_of_redis_6_2_only(path: Path) -> None:
    assert set(re.findall(r"\bp?call\('(\w+)'", path.read_text())) <= KNOWN


@pytest.mark.redis
@pytest.mark.accepts("R21", "R32")
def test_the_life_of_a_job_takes_known_commands_and_scripts_by_their_hash(
    redis_store: Store, make_job: Any, redis_server: str
) -> None:
    live(redis_store, make_job)  # the server has the scripts from here on
    with redis.Redis.from_url(redis_server) as client:
        client.config_resetstat()
        live(redis_store, make_job)
        used = {name.removeprefix("cmdstat_").partition("|")[0].upper() for name in client.info("commandstats")}
    assert "EVALSHA" in used
    assert "EVAL" not in used
    assert used - {"CONFIG", "HELLO", "CLIENT", "SELECT"} <= KNOWN


def test_the_hash_of_a_script_is_that_of_its_source() -> None:
    shas = {scripts.load(name).sha for name in scripts.names()}
    assert len(shas) == len(scripts.names())
    assert all(re.fullmatch(rb"[0-9a-f]{40}", sha) for sha in shas)


@pytest.mark.redis
@pytest.mark.accepts("R30")
def test_keys_are_read_by_hand_as_the_table_says(redis_store: Store, make_job: Any) -> None:
    redis_store.enqueue("default", [make_job("waits"), make_job("later", run_at=redis_store.now() + 60_000)])
    redis_store.enqueue("default", [make_job("runs", priority=100)])
    (claim,) = redis_store.claim("default", "w", 1, lease=30_000).claims
    client, tag = redis_store.transport.client, f"{{{redis_store.keys.namespace}:default}}:"

    assert client.hlen(tag + "jobs") == 3
    assert client.zrange(tag + "queued", 0, -1) == [b"waits"]
    assert client.zrange(tag + "scheduled", 0, -1) == [b"later"]
    assert client.hget(tag + "claims", "runs").split(b":")[::2] == [b"%d" % claim.token, b"w"]
    assert client.smembers(f"{{{redis_store.keys.namespace}}}:queues") == {b"default"}
    found = {key.decode().removeprefix(tag): client.type(key).decode() for key in client.scan_iter(tag + "*")}
    assert found == {name: QUEUE_KEYS[name] for name in found}


@pytest.mark.redis
@pytest.mark.accepts("R26", "R30")
def test_namespaces_do_not_see_each_other_and_are_cleared_by_their_prefix(
    make_redis_store: Any, make_job: Any, redis_server: str
) -> None:
    name = f"one{uuid4().hex[:10]}"
    one, other = make_redis_store(namespace=name), make_redis_store(namespace=f"{name}2")
    for store in (one, other):
        store.enqueue("default", [make_job("same")])
        store.publish_worker("east-1", {}, 60_000)
    assert one.cancel("default", ["same"]) == {"same": "cancelled"}
    assert other.get("default", "same").state == "queued"
    with redis.Redis.from_url(redis_server) as client:
        client.delete(*client.scan_iter(f"{{{name}}}:*"), *client.scan_iter(f"{{{name}:*}}:*"))
        assert not list(client.scan_iter(f"*{name}[:}}]*"))
    assert (one.queues(), one.workers(), one.get("default", "same")) == ([], [], None)
    assert other.queues() == ["default"]
    assert [worker.name for worker in other.workers()] == ["east-1"]
    assert [claim.id for claim in other.claim("default", "w", 1, lease=30_000).claims] == ["same"]


def live(store: Store, make_job: Any) -> None:
    """One job that succeeds, one that is tried again, one that dies, one of a worker that is lost."""
    store.enqueue("default", [make_job() for _ in range(4)])
    done, again, dead, _ = store.claim("default", "w", 4, lease=30_000).claims
    store.complete("default", [Completed(done)])
    failed = Attempt(1, "failed", 0, 12, "w", "ValueError", "no", "")
    store.retry(again, failed, 1)
    store.bury(dead, failed)
    store.recover("default", worker="w")
    store.stats(["default"])
