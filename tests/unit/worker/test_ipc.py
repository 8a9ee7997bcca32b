"""Messages between the processes of a worker."""

from __future__ import annotations

import pytest

from django_jobs.worker.ipc import IpcChannel, pair
from django_jobs.worker.messages import Close, Drain, Message, Open, Ping, Retire, Stop


def all_of(child: IpcChannel, last: Message) -> list[Message]:
    """Return the messages up to this one."""
    found: list[Message] = []
    while last not in found:
        found += child.receive()
    return found


def fill(parent: IpcChannel, message: Message) -> None:
    """Send until the child's unread messages fill the channel."""
    while parent.send(message):
        pass


@pytest.mark.parametrize("size", [1, 700, 5000, 300_000])
def test_orders_reach_a_child_that_did_not_read_for_long(size: int) -> None:
    """Each once and in their order, whatever the length of the messages that fill the channel."""
    parent, child = pair()
    fill(parent, Stop("q", "x" * size))
    for order in (Close(), Open(), Close(), Close(), Drain()):
        assert not parent.send(order)
    found: list[Message] = []
    while not parent.send(Ping(1)):
        found += child.receive()
    found += all_of(child, Ping(1))
    orders = [message for message in found if message not in (Stop("q", "x" * size), Ping(1))]
    # One that is repeated may come twice: the first is on its way already.
    assert [one for one, before in zip(orders, [None, *orders], strict=False) if one != before] == [
        Close(), Open(), Close(), Drain(),
    ]  # fmt: skip
    parent.close()
    child.close()


def test_what_is_said_again_anyway_is_not_kept() -> None:
    """Otherwise a frozen child's parent would grow with every ping."""
    parent, child = pair()
    fill(parent, Ping(1))
    for serial in range(10, 10_000):
        assert not parent.send(Ping(serial))
    for _ in range(1000):
        assert not parent.send(Retire())
    while not parent.send(Ping(2)):
        child.receive()
    found = all_of(child, Ping(2))
    assert [message for message in found if message not in (Ping(1), Ping(2))] in ([Retire()], [Retire()] * 2)
    parent.close()
    child.close()
