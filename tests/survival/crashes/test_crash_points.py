"""A worker killed at every place in its code that matters: nothing is lost, nothing repeated without need, and soon."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.checker import repeated_for_no_reason
from tests.support.dose import dose
from tests.support.pools import Pool, Producer, Site
from tests.support.processes import send_signal
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis]

POINTS = (
    "claim.before_send",
    "claim.after_reply",
    "run.before",
    "run.after",
    "ack.before_send",
    "ack.after_reply",
    "fail.before_send",
    "fail.after_reply",
    "heartbeat.before_send",
    "heartbeat.after_reply",
    "supervisor.after_fork",
    "shutdown.before_handback",
    "shutdown.mid_handback",
    "reap.mid_batch",
)
#: the how-manieth to pass through the point dies.
PASSES = dose((1,), long=(1, 2, 1, 2, 1))


def work_for(point: str, producer: Producer, prefix: str, gate: Path) -> None:
    """Jobs that lead a worker to the point.  At a shutdown they run until the gate is there: none ends before."""
    if point.startswith("shutdown"):
        producer.ask("held", [f"{prefix}-{n}" for n in range(6)], str(gate))
        assert not producer.answer()["errors"]
    else:
        producer.send("work", 400, 4, prefix=prefix)
        producer.send("flaky", 10, 1, prefix=f"{prefix}-flaky")


def lead_there(point: str, site: Site, doomed: Pool) -> None:
    """What must happen to the worker before it passes the point."""
    if point.startswith("shutdown"):
        site.ledger.wait_for(lambda events: any(e.pid in doomed.children() for e in events), "it runs jobs")
        doomed.process.send_signal(signal.SIGTERM)
    elif point.startswith("reap"):
        site.ledger.wait_for(
            lambda events: {e.pid for e in events if e.kind == "start"} & set(doomed.children()), "it runs jobs"
        )
        runs = {event.pid for event in site.ledger.read()} & set(doomed.children())
        send_signal(runs.pop(), signal.SIGKILL)


@pytest.mark.accepts("G04", "G51", "G52", "P14", "R03", "R17")
@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_dies_there_loses_nothing(site: Site, point: str) -> None:
    producer = site.producer()
    killed: set[int] = set()
    for turn, number in enumerate(PASSES):
        died, gate = site.folder / f"died-{turn}", site.folder / f"gate-{turn}"
        if point.startswith(("shutdown", "reap")):
            number = 1
        work_for(point, producer, f"turn{turn}", gate)
        doomed = site.pool("--drain-timeout", "0.2", crash=f"{point}:{number}:{died}")
        lead_there(point, site, doomed)
        wait_until(lambda d=doomed, file=died: (d.children(), file.exists())[1], f"a death at {point}", seconds=20)
        gate.touch()
        healthy = site.pool("--drain-timeout", "5")
        site.wait_drained(seconds=30)
        if doomed.process.poll() is None:
            assert doomed.stop() in (0, -signal.SIGKILL)
        killed |= doomed.seen
        assert healthy.stop() == 0
    site.verdict()
    repeated = repeated_for_no_reason(site.ledger.read(), dict.fromkeys(killed, 0))
    assert all("flaky" in id for id in repeated), repeated
    assert not site.counts()["dead"], "one death buries nobody"
