"""Ends the process after an error in a thread of this package that no job has caused."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

logger = logging.getLogger("django_jobs.worker")

#: Exit status of a process after an internal error; sysexits.h calls it EX_SOFTWARE.
SOFTWARE_FAULT = 70


def end_process() -> NoReturn:
    """Log the exception being handled and end this process.

    After an internal error it is unknown which claims the threads hold, and a thread that has ended would hold its
    claims for ever.  Once this process is gone, the parent hands them back.
    """
    try:
        logger.critical("A fault in the worker: this process ends, and its jobs run again", exc_info=True)
        logging.shutdown()
    finally:  # a filter or a handler of the project's may raise
        os._exit(SOFTWARE_FAULT)


@contextmanager
def faults_end_process(instead: Callable[[], object] | None = None) -> Iterator[None]:
    """Surround the body of a thread: whatever it raises ends the process, or is handled by `instead()`."""
    try:
        yield
    except BaseException:
        (instead or end_process)()
