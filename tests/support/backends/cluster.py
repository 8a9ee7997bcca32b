"""A Redis Cluster of three nodes of the test run's own."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import redis

from tests.support.backends.redis_process import free_ports
from tests.support.backends.servers import guarded, server_program
from tests.support.backends.tls import Tls

SLOTS = 16384
NODES = 3
#: The nodes talk among themselves on a port so far above that of the clients: older ones cannot be told another.
BUS = 10_000
#: Seconds until the nodes must agree.
PATIENCE = 120.0


@contextmanager
def running_cluster(*options: str, tls: Tls | None = None, replicas: bool = False) -> Iterator[str]:
    """Start three nodes that share the slots, yield the STORE setting, and kill them.  With `tls` they speak only
    TLS, and the setting has its options; with `replicas` each has one."""
    program, folder = server_program(), Path(tempfile.mkdtemp(prefix="djc"))
    ports = free_ports(NODES * 2 if replicas else NODES, BUS)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for port in ports:
            home = folder / str(port)
            home.mkdir()
            command = [program.path, "--port", str(port), "--dir", str(home), "--save", "", "--cluster-enabled", "yes"]
            command += [*program.cluster_port(port + BUS), "--loglevel", "warning", *options]
            command += [*tls.server(port), "--tls-cluster", "yes"] if tls else []
            stack.enter_context(guarded(command, home))
        clients = [stack.enter_context(redis.Redis("127.0.0.1", port, **(tls.client if tls else {}))) for port in ports]
        for client in clients:
            _until(client.ping)
        share = SLOTS // NODES
        for number, client in enumerate(clients[:NODES]):
            last = SLOTS if number == NODES - 1 else (number + 1) * share
            client.execute_command("CLUSTER", "ADDSLOTS", *range(number * share, last))
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for port in ports[1:]:
            clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", port, port + BUS)
        for client in clients:
            _until(lambda client=client: _agrees(client, len(clients)))
        for primary, replica in zip(clients[:NODES], clients[NODES:], strict=False):
            name = primary.execute_command("CLUSTER", "MYID")
            replica.execute_command("CLUSTER", "REPLICATE", name)
        for replica in clients[NODES:]:
            _until(lambda client=replica: client.info("replication")["master_link_status"] == "up")
        nodes = ",".join(f"127.0.0.1:{port}" for port in ports)
        yield f"rediss+cluster://{nodes}?{tls.query}" if tls else f"redis+cluster://{nodes}"


def _agrees(client: redis.Redis, nodes: int) -> bool:
    info = client.execute_command("CLUSTER", "INFO")
    text = info if isinstance(info, dict) else dict(line.split(":") for line in bytes(info).decode().split())
    return text["cluster_state"] == "ok" and text["cluster_known_nodes"] == str(nodes)


def _until(true: object) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(redis.RedisError):
            if true():  # type: ignore[operator]
                return
        time.sleep(0.02)
    raise RuntimeError("The cluster's nodes did not come to agree.")
