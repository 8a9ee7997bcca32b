"""How parent and child talk: JSON lines over a socket pair.

Parent → child: {"do": "drain" | "retire" | "close" | "open"}, {"do": "ping" | "stop" | "learn" | "check" | "held", …}.
Child → parent: {"is": "started" | "ended", …} (alone children), {"is": "pong" | "checked", …}, {"is": "retiring"},
{"is": "learnt" | "agreed"}.  An alone child is told {"do": "try" | "yield"}: it may run suspects, or no more; then it
says {"is": "yielded"}.  The maintenance process hears {"do": "spare" | "announce", …} and {"do": "retire"}; it says
{"is": "types", …} and {"is": "alive" | "begun" | "telling" | "told"}.
The other end closing means that its process is gone.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from threading import Lock
from typing import Any

#: Bytes of unread messages that a socket holds for a child that does not read: beyond it the message is dropped.
_BUFFER = 1 << 18


def pair() -> tuple[Channel, Channel]:
    """Two ends of one channel: the parent's, the child's."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    # The parent must never wait for a child that a job has frozen; a child may wait for its parent.
    ours.setblocking(False)
    return Channel(ours), Channel(theirs)


class Channel:
    """One end.  Sending is safe from many threads; one thread reads."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._lock = Lock()
        self._rest = self._unsent = b""
        self.is_open = True
        #: the last `receive` found nothing, though the other end is open (a job's own child may hold it).
        self.is_dry = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Mapping[str, Any]) -> bool:
        """Send one message.  False: the other end is gone, or (from the parent) reads nothing."""
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            try:
                if self._unsent:
                    self._unsent = self._unsent[self._socket.send(self._unsent) :]
                if self._unsent:
                    return False
                # A message that is begun must be finished before the next, or both are unreadable.
                self._unsent = data[self._socket.send(data) :]
            except OSError:
                return False
        return True

    def receive(self) -> list[dict[str, Any]]:
        """The messages that are there; sets is_open to False at the end of the stream."""
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            self.is_dry = True
            return []
        except OSError:
            data = b""
        self.is_dry = False
        if not data:
            self.is_open = False
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        self._socket.close()
