"""Names: which functions of a project are tasks, and what a name in a module stands for."""

from __future__ import annotations

import ast
import re
import tokenize
from dataclasses import dataclass, field
from pathlib import Path

#: Decorators from these modules make tasks.
CELERY = ("celery", "django_jobs.compat.celery")
#: What a file raises that Python would not import, or that is nested too deep to be read.
UNREADABLE = (SyntaxError, ValueError, OSError, RecursionError, MemoryError)
#: A module in which none of this stands has no task, no call of one, and no class of tasks.
_WORDS = re.compile(r"celery|kombu|flower|[Tt]ask|delay|apply|ignature|revoke|retry|\.si?\(|\.conf\b")


@dataclass
class Module:
    path: Path
    #: its dotted name, as far as the folder tells.
    name: str
    tree: ast.Module
    #: local name → dotted name of what was imported.
    imports: dict[str, str] = field(default_factory=dict)
    #: names that stand for something else in the function that is read: parameters and variables.
    hidden: list[frozenset[str]] = field(default_factory=list)
    #: its assignments, classes and functions.
    definitions: list[ast.stmt] = field(default_factory=list)

    def resolve(self, node: ast.expr) -> str:
        """Return the dotted name of an expression such as `tasks.add`; "" for any other."""
        if isinstance(node, ast.Name):
            if any(node.id in names for names in self.hidden):
                return ""
            return self.imports.get(node.id, f"{self.name}.{node.id}")
        if isinstance(node, ast.Attribute) and (before := self.resolve(node.value)):
            return f"{before}.{node.attr}"
        return ""


@dataclass
class DefinedNames:
    """What all modules together define."""

    #: the name of the folder that is read: modules may be imported with it or without.
    root: str = ""
    #: dotted name of a task → whether its first argument is the task.
    tasks: dict[str, bool] = field(default_factory=dict)
    #: dotted names of applications and of classes of tasks.
    apps: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    #: `name=` of tasks.
    given: set[str] = field(default_factory=set)
    #: id of a collection → how many names it had, and these by their last parts.
    _by_last: dict[int, tuple[int, dict[str, list[str]]]] = field(default_factory=dict)

    def find(self, dotted: str, among: dict[str, bool] | set[str]) -> str | None:
        """Return the name in `among` that a dotted name means.  A folder above the project may be its first part."""
        if dotted in among or not dotted:
            return dotted or None
        if self.root and dotted.startswith(f"{self.root}."):
            return self.find(dotted.removeprefix(f"{self.root}."), among)
        count, by_last = self._by_last.get(id(among), (-1, {}))
        if count != len(among):
            by_last = {}
            for each in among:
                by_last.setdefault(each.rpartition(".")[2], []).append(each)
            self._by_last[id(among)] = len(among), by_last
        found = by_last.get(dotted.rpartition(".")[2], ())
        return next((each for each in found if each.endswith(f".{dotted}")), None)


def parsed(path: Path, root: Path) -> Module | None:
    """Read one module; None if no word in it can be of Celery's, as in most.  Raises UNREADABLE."""
    with tokenize.open(path) as file:
        text = file.read()
    if not _WORDS.search(text):
        return None
    parts = path.relative_to(root).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    module = Module(path.relative_to(root), name, ast.parse(text))
    package = parts[:-1]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                module.imports[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                module.imports[alias.asname or alias.name] = f"{source}.{alias.name}"
        elif isinstance(node, ast.Assign | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            module.definitions.append(node)
    return module


def variables_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    given = node.args
    names = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    stored = (each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
    return frozenset(each.arg for each in names) | frozenset(stored)


def names_of(module: Module, names: DefinedNames) -> None:
    for node in module.definitions:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if is_of_celery(module.resolve(node.value.func), "Celery"):
                names.apps |= {module.resolve(target) for target in node.targets}
        elif isinstance(node, ast.ClassDef) and any(is_base(module, names, base) for base in node.bases):
            names.classes.add(f"{module.name}.{node.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                if is_task_decorator(module, names, decorator):
                    options = options_of(decorator)
                    bound = options.get("bind")
                    names.tasks[f"{module.name}.{node.name}"] = isinstance(bound, ast.Constant) and bound.value is True
                    name = options.get("name")
                    if isinstance(name, ast.Constant):
                        names.given.add(str(name.value))


def is_base(module: Module, names: DefinedNames, node: ast.expr) -> bool:
    """Whether it is a class of tasks: Task, that of an application, or one of the project."""
    dotted = module.resolve(node)
    owner, _, last = dotted.rpartition(".")
    if is_of_celery(dotted, "Task") or names.find(dotted, names.classes) is not None:
        return True
    return last == "Task" and names.find(owner, names.apps) is not None


def is_task_decorator(module: Module, names: DefinedNames, decorator: ast.expr) -> bool:
    """Whether it makes a task: shared_task, or `.task` of an application or of a name that looks like one."""
    func = decorator.func if isinstance(decorator, ast.Call) else decorator
    if is_of_celery(module.resolve(func), "shared_task"):
        return True
    if not (isinstance(func, ast.Attribute) and func.attr == "task"):
        return False
    owner = module.resolve(func.value)
    return names.find(owner, names.apps) is not None or owner.rpartition(".")[2] in ("app", "celery_app", "celery")


def options_of(decorator: ast.expr) -> dict[str | None, ast.expr]:
    """Return the keyword arguments; None is the key of `**options`."""
    return {each.arg: each.value for each in decorator.keywords} if isinstance(decorator, ast.Call) else {}


def is_of_celery(dotted: str, name: str) -> bool:
    """Whether a dotted name is this name of Celery, or of the layer."""
    return dotted.rpartition(".")[2] == name and dotted.startswith(CELERY)
