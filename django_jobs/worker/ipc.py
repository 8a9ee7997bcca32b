"""How the processes of one worker exchange messages: JSON lines over a socket pair between the parent and each other
process.  If the other end is closed, its process is gone.
"""

from __future__ import annotations

import socket
from threading import Lock

from django_jobs.worker.messages import Message, decode, encode

#: Bytes of unread messages that a socket holds for a child that does not read.  Further messages are dropped, or kept
#: until there is room if they must arrive.
_BUFFER = 1 << 18


def pair() -> tuple[IpcChannel, IpcChannel]:
    """Return the two ends of a new channel: the parent's, the child's.  Raises OSError."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    # The parent must never wait for a child that a job has frozen; a child may wait for its parent.
    ours.setblocking(False)
    return IpcChannel(ours), IpcChannel(theirs)


class IpcChannel:
    """One end of a channel.  Any thread may send; only one thread may receive."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._lock = Lock()
        self._rest = b""
        #: the end of a message that was sent in part, and the messages that are kept until there is room.
        self._unsent = b""
        self._kept: list[bytes] = []
        self.is_open = True
        #: the last `receive` found nothing although the other end is open (a process that a job forked may hold it).
        self.is_dry = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> bool:
        """Send one message.  False: the other end is gone or (only in the parent) does not read.

        A message that must arrive is sent later then, before the next message for which there is room."""
        data = encode(message)
        with self._lock:
            try:
                while self._unsent or self._kept:
                    self._unsent = self._unsent or self._kept.pop(0)
                    self._unsent = self._unsent[self._socket.send(self._unsent) :]
                # A message sent in part must be completed before the next, or both are unreadable.
                self._unsent = data[self._socket.send(data) :]
            except BlockingIOError:
                if message.must_arrive and data not in self._kept[-1:]:
                    self._kept.append(data)
                return False
            except OSError:
                return False
        return True

    def receive(self) -> list[Message]:
        """Return the messages that have arrived; set `is_open` to False at the end of the stream."""
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
        return [decode(line) for line in lines]

    def close(self) -> None:
        self._socket.close()
