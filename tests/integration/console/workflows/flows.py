"""Workflows and batches in each state, for commands and pages."""

from __future__ import annotations

from typing import Any

from django_jobs import Batch, Workflow, job
from django_jobs.core.values import Attempt, Lane
from django_jobs.stores.redis import Store
from django_jobs.workflows import engine
from tests.contract.workflows.steps import DEAD, ENDS, act, run


@job(name="tests.flows.charge", delivery="at_most_once", sensitive=["card"])
def charge(card: str) -> None:
    """A step that must not happen twice."""


def order(store: Store, *, dead: str = "") -> str:
    """paid → (packed, invoiced) → mailed, worked off; the step `dead` fails."""
    if dead:
        ENDS[dead] = DEAD
    handle = order_waiting()
    run(store)
    ENDS.clear()
    return handle


def order_waiting(name: str = "order 7") -> str:
    """The same, not begun."""
    flow = Workflow(name)
    paid = flow.add(act.s("paid"), name="paid")
    packed = flow.add(act.s("packed"), name="packed", after=[paid])
    invoiced = flow.add(act.s("invoiced"), name="invoiced", after=[paid])
    flow.add(act.s("mailed"), name="mailed", after=[packed, invoiced])
    id: str = flow.enqueue().id
    return id


def batch(store: Store, *names: str, dead: str = "", name: str = "import") -> str:
    """A closed batch, worked off."""
    if dead:
        ENDS[dead] = DEAD
    made = Batch(name, on_success=act.s("success"))
    with made:
        act.enqueue_many([(each,) for each in names or ("a", "b")])
    run(store)
    ENDS.clear()
    id: str = made.handle.id
    return id


def charged_and_dead(store: Store) -> str:
    """One step that is delivered at most once, was started, and is dead."""
    flow = Workflow("charge")
    flow.add(charge.s("4111 1111"), name="charge")
    handle = flow.enqueue()
    (claim,) = store.claim("default", "w", 1, lane=Lane.ALONE, lease=60_000).claims
    store.bury(claim, Attempt(1, "failed", store.now(), error_type="Declined", error="card 4111 1111 was declined"))
    engine.advance(store, "default")
    id: str = handle.id
    return id


def mailed_and_dead(store: Store, address: str) -> str:
    """One step that is dead, with an error that quotes its argument, which is not sensitive."""
    flow = Workflow("mail")
    flow.add(act.s(address), name="mail")
    handle = flow.enqueue()
    (claim,) = store.claim("default", "w", 1, lease=60_000).claims
    store.bury(claim, Attempt(1, "failed", store.now(), error_type="Refused", error=f"{address} was refused"))
    engine.advance(store, "default")
    id: str = handle.id
    return id


def ids(rows: Any) -> list[str]:
    return [each["id"] for each in rows]
