"""Write docs/acceptance.md from docs/acceptance.toml and the marks of the tests: `python -m tools.acceptance`.

With --check it writes nothing and ends with 1 if the file is not up to date.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE, TARGET = ROOT / "docs" / "acceptance.toml", ROOT / "docs" / "acceptance.md"
NO_REASON = "not shown by a test yet"
#: At most so many tests are named in a row; the rest is counted.
NAMED = 3
HEAD = """\
# Acceptance

What django_jobs promises, where each promise is kept, and the tests that show it. Made by `make docs` from
[acceptance.toml](acceptance.toml) and the `accepts` marks of the tests; do not edit it by hand.

{shown} of {all} promises are shown by a test.

| id | promise | how | shown by |
|---|---|---|---|
"""


def main(arguments: list[str]) -> int:
    """Write or check the page; return the exit status."""
    text = page(tomllib.loads(SOURCE.read_text()), marks(ROOT / "tests"))
    if "--check" in arguments:
        if TARGET.exists() and TARGET.read_text() == text:
            return 0
        print(f"{TARGET.relative_to(ROOT)} is not up to date: run `make docs`.", file=sys.stderr)
        return 1
    TARGET.write_text(text)
    return 0


def page(promises: Mapping[str, Mapping[str, str]], tests: Mapping[str, list[str]]) -> str:
    """The whole text.  Raises SystemExit if a test names a promise that does not exist."""
    if unknown := sorted(set(tests) - set(promises)):
        raise SystemExit(f"Tests accept ids that {SOURCE.name} does not have: {', '.join(unknown)}.")
    head = HEAD.format(shown=sum(id in tests for id in promises), all=len(promises))
    return head + "".join(row(id, entry, tests.get(id, [])) for id, entry in promises.items())


def row(id: str, entry: Mapping[str, str], tests: list[str]) -> str:
    """One line of the table."""
    if tests:
        more = f" and {len(tests) - NAMED} more" if len(tests) > NAMED else ""
        shown = "<br>".join(f"`{test}`" for test in tests[:NAMED]) + more
    else:
        shown = entry.get("reason", NO_REASON)
    return f"| {id} | {entry['promise']} | {entry['how']} | {shown} |\n".replace("||", "|")


def marks(folder: Path) -> dict[str, list[str]]:
    """id → tests that carry it, as "file::name".  Reads the source: no test is imported or run."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text())
        file = path.relative_to(folder).as_posix()
        whole_file = [id for node in tree.body if is_pytestmark(node) for id in accepted(node)]
        for name, ids in marked(tree, whole_file):
            for id in dict.fromkeys(ids):
                found[id].append(f"{file}::{name}")
    return dict(found)


def marked(tree: ast.AST, inherited: list[str], prefix: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each test in `tree` with the ids of its own, its class's and its file's marks."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            ids = inherited + [id for each in node.decorator_list for id in accepted(each)]
            yield from marked(node, ids, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield prefix + node.name, inherited + [id for each in node.decorator_list for id in accepted(each)]


def is_pytestmark(node: ast.AST) -> bool:
    """Is this the assignment that marks a whole file?"""
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets)


def accepted(node: ast.AST) -> list[str]:
    """The ids in every `….accepts("G01", …)` within `node`."""
    return [
        str(argument.value)
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "accepts"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
