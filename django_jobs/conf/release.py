"""The release of the project's code that this process runs: the setting RELEASE, or what the surroundings say."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from django_jobs.conf import get_settings
from django_jobs.conf.values import release as check

#: Environment variables in which platforms name what they deployed.  The first that is set counts.
VARIABLES = (
    "HEROKU_SLUG_COMMIT",
    "HEROKU_BUILD_COMMIT",
    "RENDER_GIT_COMMIT",
    "RAILWAY_GIT_COMMIT_SHA",
    "KOYEB_GIT_SHA",
    "ZEABUR_GIT_COMMIT_SHA",
    "SOURCE_COMMIT",
    "SOURCE_VERSION",
    "CONTAINER_VERSION",
    "PLATFORM_TREE_ID",
    "GAE_VERSION",
    "K_REVISION",
    "FLY_IMAGE_REF",
)
#: Characters of a commit that are kept: people compare them.
SHORT = 12
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def release() -> str:
    """Return the release; "" if it is not known.  The surroundings are read once: a process keeps its code, whatever is
    checked out while it runs."""
    settings = get_settings()
    if settings.release is None or check(settings.release) is not None:  # the checks report a wrong one
        return found(settings.base_dir)
    return settings.release


@lru_cache(maxsize=1)
def found(folder: str) -> str:
    """Return what a platform's variables say, or the commit of the checkout that has this folder."""
    named = next(filter(None, (os.environ.get(name, "").strip() for name in VARIABLES)), "")
    text = named or commit(Path(folder))
    if _COMMIT.fullmatch(text):
        return text[:SHORT]
    return text if check(text) is None else ""


def commit(folder: Path) -> str:
    """Return the commit that is checked out there; "" without a checkout.  Reads the files of git and starts no
    process, because web servers call this, too."""
    try:
        folder = folder.resolve()
        root = next((each / ".git" for each in (folder, *folder.parents) if (each / ".git").exists()), None)
        return _head_of(root) if root else ""
    except (OSError, ValueError, RuntimeError):
        return ""


def _head_of(root: Path) -> str:
    if root.is_file():  # of another working tree, or of a submodule
        root = (root.parent / _line(root).removeprefix("gitdir: ")).resolve()
    head = _line(root / "HEAD")
    name = head.removeprefix("ref: ")
    if name == head:
        return head if _COMMIT.fullmatch(head) else ""
    common = root / "commondir"
    folders = [root, *([(root / _line(common)).resolve()] if common.is_file() else [])]
    for each in folders:
        if (each / name).is_file():
            return _line(each / name)
    packed = folders[-1] / "packed-refs"
    for line in packed.read_text(errors="replace").splitlines() if packed.is_file() else ():
        known, _, ref = line.partition(" ")
        if ref == name:
            return known
    return ""


def _line(path: Path) -> str:
    with path.open(errors="replace") as file:
        return file.readline(4096).strip()
