"""Write docs/contributing/acceptance.md from acceptance.toml beside it and the tests: `python -m tools.acceptance`.

With --check it writes nothing and ends with 1 if the file is not up to date.

With --break [ROW…] it breaks each promise once, in a copy of the tree, and runs a test of the row there (`make
acceptance`).  `break` in acceptance.toml names the mutant that breaks the promise; a test with the mark of the row must
be one of those that catch it.  `unbreakable` gives the reason why no change can break the promise.  Ends with 1 if a
test does not notice, or if a row has neither.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tools.mutants import Mutant, mutants, try_all

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "contributing"
SOURCE, TARGET = FOLDER / "acceptance.toml", FOLDER / "acceptance.md"
NO_REASON = "not shown by a test yet"
#: Maximum promises per test: a test with more was not written to show them.
MOST = 7
#: At most this many tests are named per row; the others are counted.
NAMED = 3
HEAD = """\
# Acceptance

What django_jobs promises, where each promise is kept, and the tests that show it. Made by `make docs` from
[acceptance.toml](acceptance.toml) and the `accepts` marks of the tests; do not edit it by hand.

{shown} of {all} promises are shown by a test as they were written. {otherwise} are answered otherwise: the row says how
and why, and a test shows the answer where one can.

| id | promise | how | shown by |
|---|---|---|---|
"""


def main(arguments: list[str]) -> int:
    """Write or check the page, or break the promises; return the exit status."""
    promises, tests = tomllib.loads(SOURCE.read_text()), marks(ROOT / "tests")
    if "--break" in arguments:
        return break_each(promises, tests, [word for word in arguments if word != "--break"] or list(promises))
    text = page(promises, tests)
    if "--check" in arguments:
        if TARGET.exists() and TARGET.read_text() == text:
            return 0
        print(f"{TARGET.relative_to(ROOT)} is not up to date: run `make docs`.", file=sys.stderr)
        return 1
    TARGET.write_text(text)
    return 0


def break_each(promises: Mapping[str, Mapping[str, str]], tests: Mapping[str, list[str]], rows: Sequence[str]) -> int:
    """Break each promise of these rows; return the exit status.  Rows with the same break and test share one run."""
    trials: dict[Mutant, list[str]] = defaultdict(list)
    wrong = 0
    for id in rows:
        try:
            found = break_of(promises[id], tests.get(id, []))
        except ValueError as error:
            wrong += 1
            print(f"{id}: {error}")
            continue
        if found is None:
            print(f"{id}: not tried: {promises[id]['unbreakable']}")
        else:
            trials[found].append(id)
    return try_all([(" ".join(ids), mutant) for mutant, ids in trials.items()]) or int(wrong > 0)


def break_of(entry: Mapping[str, str], tests: Sequence[str]) -> Mutant | None:
    """Return the mutant that breaks the promise, with the first of its tests that has the mark of the row; None if no
    change can break it.  Raises ValueError if the row has no break, or no test of its own that catches it."""
    if "unbreakable" in entry:
        return None
    if "break" not in entry:
        raise ValueError("no break: name a mutant as `break`, or give the reason as `unbreakable`.")
    (mutant,) = mutants([entry["break"]])
    for test in mutant.tests:
        if test.removeprefix("tests/").split("[")[0] in tests:
            return replace(mutant, tests=(test,))
    raise ValueError(f"no test with the mark of the row is named in tests/mutants/{mutant.name}.patch.")


def page(promises: Mapping[str, Mapping[str, str]], tests: Mapping[str, list[str]]) -> str:
    """Return the whole text.  Raises SystemExit if a test names a promise that does not exist."""
    if unknown := sorted(set(tests) - set(promises)):
        raise SystemExit(f"Tests accept ids that {SOURCE.name} does not have: {', '.join(unknown)}.")
    otherwise = sum("otherwise" in entry for entry in promises.values())
    shown = sum(id in tests and "otherwise" not in entry for id, entry in promises.items())
    head = HEAD.format(shown=shown, otherwise=otherwise, all=len(promises))
    return head + "".join(row(id, entry, tests.get(id, [])) for id, entry in promises.items())


def row(id: str, entry: Mapping[str, str], tests: list[str]) -> str:
    """Return one line of the table."""
    if tests:
        more = f" and {len(tests) - NAMED} more" if len(tests) > NAMED else ""
        shown = "<br>".join(f"`{test}`" for test in tests[:NAMED]) + more
    else:
        shown = NO_REASON
    if "otherwise" in entry:
        answer = f"**Answered otherwise**: {entry['otherwise']}"
        shown = f"{answer}<br>{shown}" if tests else answer
    return f"| {id} | {entry['promise']} | {entry['how']} | {shown} |\n".replace("||", "|")


def marks(folder: Path) -> dict[str, list[str]]:
    """Return id → tests with this mark, as "file::name".  Reads the source: no test is imported or run.

    Raises SystemExit for a mark that is not on a single test: a mark on a class or file would also cover tests that
    show something else."""
    found: dict[str, list[str]] = defaultdict(list)
    wrong: list[str] = []
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text())
        file = path.relative_to(folder).as_posix()
        mine = 0
        for name, ids in marked(tree):
            mine += len(ids)
            if len(ids) > MOST:
                wrong.append(f"{file}::{name} claims {len(ids)} promises; one test shows at most {MOST}")
            for id in dict.fromkeys(ids):
                found[id].append(f"{file}::{name}")
        if len(accepted(tree)) > mine:
            wrong.append(f"{file} has a mark `accepts` that is not on a test")
    if wrong:
        raise SystemExit("Marks stand on single tests: " + "; ".join(wrong) + ".")
    return dict(found)


def marked(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each test in `tree` with the ids of its own marks."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from marked(node, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield prefix + node.name, [id for each in node.decorator_list for id in accepted(each)]


def accepted(node: ast.AST) -> list[str]:
    """Return the ids in every `….accepts("G01", …)` within `node`."""
    return [
        str(argument.value)
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "accepts"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
