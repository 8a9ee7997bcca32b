"""How many CPUs this process may use, which may be fewer than the machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from math import ceil
from pathlib import Path, PurePosixPath

#: Where the groups of processes are that Linux limits, and which of them this process is in.
GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def usable_cpus(groups: Path = GROUPS, own: Path = OWN_GROUPS) -> int:
    """Return the number of CPUs in the affinity of this process or, if that is less, in the quota of its cgroups.

    A part of a CPU counts as one: a quota of one and a half gives two."""
    try:
        cpus = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not on Linux
        cpus = os.cpu_count() or 1
    return max(1, min([cpus, *map(ceil, quotas(groups, own))]))


def quotas(groups: Path, own: Path) -> Iterator[float]:
    """Yield the quotas of the cgroups that this process is in, in CPUs.  A group is limited by those above it, too.

    In a container, the path may be one of the host, which is not there; the group of the container is then the top."""
    lines = ""
    with suppress(OSError):
        lines = own.read_text()
    for line in lines.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":  # version 2
            folder, files = groups, ["cpu.max"]
        elif "cpu" in controllers.split(","):
            folder, files = groups / "cpu", ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        for group in (inside, *inside.parents):
            with suppress(OSError, ValueError, ZeroDivisionError):  # "max" and -1: no quota
                quota, period = " ".join((folder / group / file).read_text() for file in files).split()
                if int(quota) > 0:
                    yield int(quota) / int(period)
