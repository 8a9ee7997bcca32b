"""What a thread of ours does when it meets an error that is no job's."""

from __future__ import annotations

import logging
import os
from typing import NoReturn

logger = logging.getLogger("django_jobs.worker")

#: Exit status of a process that met a fault of our own; sysexits.h calls it EX_SOFTWARE.
SOFTWARE_FAULT = 70


def end_process() -> NoReturn:
    """Log the exception being handled and end this process.

    What its threads hold is unknown now, and a thread that is missing would hold it for ever; the parent knows how to
    give it back, once this process is gone.
    """
    logger.critical("A fault in the worker: this process ends, its jobs are run again", exc_info=True)
    logging.shutdown()
    os._exit(SOFTWARE_FAULT)
