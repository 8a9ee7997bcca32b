"""The house stays as it was drawn: who may import whom, and how long a file may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "django_jobs"
LONGEST = 300

#: A module imports from its own rank or below; what is not named here is an edge.
RANKS = (
    # pure
    "exceptions values outcome cron cron_text codec arguments tagged tagged_text model_references targets job_options"
    " setting_values lanes queue_stats",
    # knowledge
    "conf discovery signals registry definition store_setting uniqueness schedule_entry payloads results",
    # storage
    "stores models new_job schedule_sources",
    # use cases
    "enqueue handle sending edited calls async_calls job_function operations bulk browse middleware schedules"
    " schedule_state context archive remote metrics logs",
    # running
    "worker",
)
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names.split()}
EDGE = len(RANKS)


def python_files() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "migrations" not in path.parts]


def module_of(path: Path) -> list[str]:
    return list(path.relative_to(PACKAGE).with_suffix("").parts)


def is_module(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()


def rank_of(name: str) -> int:
    return RANK.get(name, EDGE)


def imports_of(path: Path) -> Iterator[str]:
    """Modules that are imported when this one is: imports inside functions (made at need) are another matter."""
    tree = ast.parse(path.read_text())
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if not typing_only and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _executed(child)


def everything_imported_by(path: Path) -> set[str]:
    """Those inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.accepts("O16")
def test_no_module_imports_from_a_rank_above_its_own():
    upward = []
    for path in python_files():
        here = module_of(path)[0]
        if here == "__init__":
            continue
        for name in imports_of(path):
            top, *rest = name.split(".")
            if top == "django_jobs" and rest and is_module(rest[0]) and rank_of(rest[0]) > rank_of(here):
                upward.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert upward == []


def test_only_the_redis_store_imports_redis():
    strangers = [
        str(path.relative_to(PACKAGE))
        for path in python_files()
        if not path.is_relative_to(PACKAGE / "stores" / "redis")
        and {name.split(".")[0] for name in everything_imported_by(path)} & {"redis", "django_redis"}
    ]
    assert strangers == []


def test_only_the_embedded_store_imports_sqlite():
    strangers = [
        str(path.relative_to(PACKAGE))
        for path in python_files()
        if not path.is_relative_to(PACKAGE / "stores" / "sqlite")
        and {name.split(".")[0] for name in everything_imported_by(path)} & {"sqlite3"}
    ]
    assert strangers == []


def test_only_conf_reads_our_settings():
    strangers = []
    for path in python_files():
        text = path.read_text()
        if path != PACKAGE / "conf.py" and ("settings.DJANGO_JOBS" in _code(text) or '"DJANGO_JOBS",' in _code(text)):
            strangers.append(str(path.relative_to(PACKAGE)))
    assert strangers == []


def _code(text: str) -> str:
    """Without strings that are sentences: an error may name the setting."""
    return "\n".join(
        ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute | ast.Call)
    )


def test_what_decides_knows_no_django():
    impure = [
        f"{name}.py imports {imported}"
        for name in ("exceptions", "values", "outcome", "cron", "codec")
        if (path := PACKAGE / f"{name}.py").exists()
        for imported in everything_imported_by(path)
        if imported.split(".")[0] == "django"
    ]
    assert impure == []


@pytest.mark.accepts("O16")
def test_no_file_is_longer_than_300_lines():
    files = [path for ending in ("py", "lua", "sql") for path in sorted(PACKAGE.rglob(f"*.{ending}"))]
    long = {str(path.relative_to(PACKAGE)): n for path in files if (n := len(path.read_text().splitlines())) > LONGEST}
    assert long == {}


def test_the_walls_are_looked_at():
    """The tests above would pass on an empty folder."""
    assert len(python_files()) > 20
    assert "django_jobs.stores.contract.store" in set(imports_of(PACKAGE / "stores" / "sqlite" / "store.py"))


def test_every_rank_names_modules_that_exist():
    assert [name for name in RANK if not is_module(name)] == []
