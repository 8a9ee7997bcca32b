"""`manage.py jobs audit-celery`: what of a project's Celery works with the layer as it is, and what does not.

It reads the syntax trees of the project's modules and imports none of them.  It says "works" only of what it knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django_jobs.compat.audit.findings import CallSite
from django_jobs.compat.audit.modules import UNREADABLE, DefinedNames, Module, names_of, parsed
from django_jobs.compat.audit.settings import of_settings
from django_jobs.compat.audit.sites import Reader

#: Folders whose modules are not the project's.
_OTHERS = frozenset({"node_modules", "site-packages", "migrations", "__pycache__", "build", "dist"})


def audit(root: Path, settings: Mapping[str, Any], settings_file: Path | None = None) -> Sequence[CallSite]:
    """Return what was found below a folder, in the order of files and lines.  `settings`: Django's, by name."""
    files = [path for path in sorted(root.rglob("*.py")) if _is_of_project(path.relative_to(root)) and path.is_file()]
    found: list[CallSite] = list(of_settings(settings, settings_file, root))
    modules: list[Module] = []
    names = DefinedNames(root.name)
    for path in files:
        with _unless_unreadable(path.relative_to(root), found):
            module = parsed(path, root)
            modules += [module] if module is not None else []
    known = -1
    while known != len(names.classes) + len(names.apps):  # a class may have its base in a module that comes later
        known = len(names.classes) + len(names.apps)
        for module in modules:
            with _unless_unreadable(module.path, found):
                names_of(module, names)
    for module in modules:
        reader = Reader(module, names, (settings.get("DJANGO_JOBS") or {}).get("QUEUES") or ["default"])
        with _unless_unreadable(module.path, found):
            reader.read()
        found += reader.found
    return sorted(set(found), key=lambda each: (str(each.path), each.line, each.what))


@contextmanager
def _unless_unreadable(path: Path, found: list[CallSite]) -> Iterator[None]:
    """Add a finding for a module that cannot be read, or not to its end, and go on with the next."""
    try:
        yield
    except UNREADABLE as error:
        found.append(CallSite("look", path, 1, "the module", f"It cannot be read: {str(error) or repr(error)}"))


def _is_of_project(path: Path) -> bool:
    return not any(part in _OTHERS or part.startswith(".") or "venv" in part for part in path.parts)
