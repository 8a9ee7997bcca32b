"""Ways never to end, and ways to take the process down."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import socket
import sys
import time


def _swallow() -> None:
    while True:
        try:
            time.sleep(0.05)
        except BaseException:
            continue


def _blocked_socket() -> None:
    one, _other = socket.socketpair()
    one.recv(1)


def _spin() -> None:
    while True:
        pass


ENDLESS = {
    "sleep": lambda: time.sleep(60),
    "loop": _spin,
    "regex": lambda: re.match(r"(a+)+$", "a" * 60 + "b"),
    "gil": lambda: ctypes.PyDLL(None).sleep(60),
    "socket": _blocked_socket,
    "swallow": _swallow,
}


def _out_of_memory() -> None:
    """As the kernel does it: an allocation in C that fails, and nobody checks."""
    resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))
    malloc = ctypes.CDLL(None).malloc
    malloc.argtypes, malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    ctypes.memset(malloc(2 << 30) or 0, 1, 1 << 20)


def _overflow() -> None:
    sys.setrecursionlimit(10**9)

    class Deep:
        def __repr__(self) -> str:
            return repr(self) + ""

    repr(Deep())


POISON = {
    "segfault": lambda: ctypes.string_at(0),
    "exit": lambda: os._exit(1),
    "leave": lambda: os._exit(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "memory": _out_of_memory,
    "overflow": _overflow,
}
