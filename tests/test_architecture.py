"""The house stays as it was drawn: who may import whom, how big a room may be, and that the maps are right."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_jobs.stores.redis import Store

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "django_jobs"
#: A file with more lines says why at its head: "Long because …".
LONGEST = 300
#: A folder with more files of one kind needs rooms.
MOST_FILES = 15

#: A room is a folder, or a module at the top.  It imports from rooms above it in this list, and from itself.
ROOMS = """
    exceptions
    signals formatting middleware conf runtime
    core.options
    core http
    serialization logs
    stores.values samples
    archive remote stores.redis.connection
    outbox
    stores.redis.failures
    stores.redis
    stores.embedded
    stores
    events
    enqueueing
    workflows
    browse.query
    browse
    schedules operations execution
    operations.diagnosis
    models metrics
    checks paused tasks_backend testing worker
    operating
    worker.child worker.maintenance
    worker.parent
    admin.common api.common
    admin.jobs api.endpoints
    admin.pages api
    admin.models
    admin
    compat
    compat.celery
    compat.audit
    management.jobs_commands
    management.commands
    management
    apps pytest_plugin templatetags __init__
"""
RANK = {room: rank for rank, line in enumerate(ROOMS.strip().splitlines()) for room in line.split()}
#: The imports that climb, because they are made when a call asks for them: EAGER runs a job where it is enqueued, and
#: `operations` offers what admin, API and commands read.
CLIMBS = {
    ("enqueueing.sending", "execution.eager"),
    ("workflows.batch", "execution.eager"),
    ("workflows.sending", "execution.eager"),
    ("operations", "operating"),
}

#: How many methods the store has for its callers.  Who adds one finds out here.
MOST_METHODS = 123


def python_files() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "migrations" not in path.parts]


def name_of(path: Path) -> str:
    """`core.values` for django_jobs/core/values.py, `core` for its `__init__`."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in python_files()}


def room_of(module: str) -> str:
    parts = MODULES[module].relative_to(PACKAGE).parts
    return ".".join(parts[:-1]) or Path(parts[0]).stem


def imports_of(path: Path) -> Iterator[str]:
    """The modules of this package that `path` imports: anywhere in it, for types only, and by a string."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and "import_" in ast.unparse(node.func) and node.args:
            names = [node.args[0].value] if isinstance(node.args[0], ast.Constant) else []
        else:
            continue
        for name in names:
            if found := module_in(str(name)):
                yield found


def module_in(name: str) -> str | None:
    """`core.values` for `django_jobs.core.values.State`; None for what is not ours."""
    top, *parts = name.split(".")
    if top != "django_jobs":
        return None
    while parts and ".".join(parts) not in MODULES:
        parts.pop()
    return ".".join(parts) or "__init__"


def everything_imported_by(path: Path) -> set[str]:
    """Names of top packages, ours and others'."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.accepts("O16")
def test_every_room_imports_from_lower_rooms_only():
    climbing = []
    for name, path in MODULES.items():
        for imported in imports_of(path):
            here, there = room_of(name), room_of(imported)
            if there in (here, "__init__") or (name, imported) in CLIMBS:
                continue  # what the package offers at its top is imported lazily
            if RANK[there] >= RANK[here]:
                climbing.append(f"{name} imports {imported}")
    assert climbing == []


def test_no_modules_import_each_other_in_a_circle():
    imports = {name: set(imports_of(path)) - {name, "__init__"} for name, path in MODULES.items()}
    for climbing, climbed in CLIMBS:
        imports[climbing].discard(climbed)
    assert circles(imports) == set()


def circles(imports: dict[str, set[str]]) -> set[frozenset[str]]:
    """The groups of modules each of which leads to all others of its group."""

    def reach(name: str) -> set[str]:
        found: set[str] = set()
        new = {name}
        while new:
            new = set().union(*(imports.get(each, set()) for each in new)) - found
            found |= new
        return found

    reached = {name: reach(name) for name in imports}
    groups = {frozenset(each for each in reached[name] if name in reached[each]) for name in imports}
    return {group for group in groups if len(group) > 1}


def test_only_the_store_imports_redis():
    assert strangers_that_import({"redis", "django_redis"}, PACKAGE / "stores") == []


def test_who_survives_an_error_of_the_database_survives_each_kind():
    """InterfaceError, which drivers raise on a connection that was closed, is no DatabaseError; `Error` is both."""
    found = [
        name
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module in ("django.db", "django.db.utils")
        if {each.name for each in node.names} & {"DatabaseError", "InterfaceError"}
    ]
    assert found == []


def test_running_a_job_starts_no_process_and_no_thread():
    """The HTTP API and the test kit run and settle jobs, too."""
    folder = PACKAGE / "execution"
    found = [
        str(path.relative_to(PACKAGE))
        for path in folder.glob("*.py")
        if everything_imported_by(path) & {"multiprocessing", "subprocess"}
        or "Thread(" in path.read_text()
        or "os.fork()" in code_of(path.read_text())
    ]
    assert found == []


def strangers_that_import(libraries: set[str], home: Path) -> list[str]:
    return [
        name
        for name, path in MODULES.items()
        if not path.is_relative_to(home) and everything_imported_by(path) & libraries
    ]


def test_only_conf_reads_our_settings():
    strangers = []
    for name, path in MODULES.items():
        code = code_of(path.read_text())
        if name != "conf" and ("settings.DJANGO_JOBS" in code or '"DJANGO_JOBS",' in code):
            strangers.append(name)
    assert strangers == []


def code_of(text: str) -> str:
    """Without strings that are sentences: an error may name the setting."""
    return "\n".join(
        ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute | ast.Call)
    )


def test_what_decides_knows_no_django():
    deciders = ("exceptions", "core.values", "core.outcome", "schedules.cron", "serialization.record")
    assert [name for name in deciders if "django" in everything_imported_by(MODULES[name])] == []


@pytest.mark.accepts("O16")
def test_a_long_file_says_why():
    files = [path for ending in ("py", "lua") for path in sorted(PACKAGE.rglob(f"*.{ending}"))]
    assert len(files) > 100
    long = [path for path in files if len(path.read_text().splitlines()) > LONGEST]
    assert [str(path.relative_to(PACKAGE)) for path in long if "Long because" not in path.read_text()[:1500]] == []


def test_no_folder_has_more_files_than_one_can_oversee():
    files = [path for root in (PACKAGE, TESTS) for ending in ("py", "lua") for path in root.rglob(f"*.{ending}")]
    sizes = Counter(
        str(path.parent.relative_to(TESTS.parent))
        for path in files
        if path.name != "__init__.py" and path.parent.name != "migrations"
    )
    assert {folder: size for folder, size in sizes.items() if size > MOST_FILES} == {}


def test_a_class_name_means_one_thing():
    """A schema of the API has the name of what it shows, and the layer with Celery's names has Celery's."""
    homes: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if not {"api", "compat"} & set(path.relative_to(PACKAGE).parts):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and node.name not in (
                    "Command",
                    "Migration",
                ):  # Django looks for these
                    homes.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_what_is_kept_is_text_a_picture_or_a_translation():
    """A tool or an archive that was put down in the folder would be given to everybody who clones."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TESTS.parent, capture_output=True)
    if listed.returncode:
        pytest.skip("this folder is no git checkout")
    paths = [TESTS.parent / name for name in listed.stdout.decode().split("\0") if name]
    present = [path for path in paths if path.is_file() and path.suffix not in {".png", ".jpg", ".mo"}]
    assert len(present) > 1000
    assert [str(path.relative_to(TESTS.parent)) for path in present if b"\0" in path.read_bytes()] == []


def test_the_store_does_not_grow():
    methods = [name for name in dir(Store) if not name.startswith("_") and callable(getattr(Store, name))]
    assert len(methods) <= MOST_METHODS


def test_every_room_has_a_rank_and_every_rank_a_room():
    assert {room_of(name) for name in MODULES} == set(RANK)


def test_the_walls_are_looked_at():
    """The tests above would pass on an empty folder."""
    assert len(MODULES) > 200
    assert "stores.values.options" in set(imports_of(MODULES["stores.redis.store"]))
    assert "execution.eager" in set(imports_of(MODULES["enqueueing.sending"]))
