"""One module: its tasks, and the places that call tasks.

Long because what a call means depends on what its owner is, and each answer needs the same few names."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

from django_jobs.compat.audit.classes import in_class, of_application, of_conf
from django_jobs.compat.audit.findings import CallSite, Verdict
from django_jobs.compat.audit.imports import of_import
from django_jobs.compat.audit.modules import (
    DefinedNames,
    Module,
    is_base,
    is_of_celery,
    is_task_decorator,
    options_of,
    variables_of,
)
from django_jobs.compat.celery.app import OPTIONS
from django_jobs.compat.celery.calls import KNOWN
from django_jobs.compat.celery.canvas import Signature, chain, chord, group
from django_jobs.compat.celery.missing import CALL_OPTIONS, OF_RESULTS, OF_TASKS, TASK_OPTIONS
from django_jobs.compat.celery.request import REMEDIES, Context
from django_jobs.conf.queues import covers

_CALLS = frozenset({"delay", "apply_async", "delay_on_commit", "apply_async_on_commit", "apply"})
_PARTS = frozenset({"s", "si", "signature", "map", "starmap", "chunks"})
_CANVAS = frozenset({"chain", "group", "chord"})
_BACK = frozenset({"link", "link_error"})
_OF_PARTS = frozenset(name for kind in (Signature, chain, group, chord) for name in dir(kind))
_RETRY = frozenset({"args", "queue", "kwargs", "exc", "countdown", "eta", "max_retries"})
_REQUEST = frozenset(Context.__dataclass_fields__) | {"get", "time_limit", "soft_time_limit"}
_UNKNOWN = "The audit does not know what this is."


class Reader:
    def __init__(self, module: Module, names: DefinedNames, queues: Collection[str]) -> None:
        self.module, self.names, self.queues = module, names, queues
        self.found: list[CallSite] = []
        #: whether the first argument of the function that is read is a task.
        self._selves: list[str] = []
        #: names of the function that is read which hold a result; of the module first.
        self._results: list[set[str]] = [set()]
        #: the methods of classes of tasks.
        self._methods: set[int] = set()

    def read(self) -> None:
        self._visit(self.module.tree)

    def _say(self, verdict: Verdict, node: ast.AST, what: str, why: str = "") -> None:
        self.found.append(CallSite(verdict, self.module.path, getattr(node, "lineno", 1), what, why))

    def _visit(self, node: ast.AST) -> None:
        entered = False
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    self.found += of_import(self.module.path, node.lineno, alias.name, "")
            case ast.ImportFrom(module=str(source), names=aliases, level=0):
                for alias in aliases:
                    self.found += of_import(self.module.path, node.lineno, source, alias.name)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._selves.append(self._self_of(node))
                self._results.append(set())
                self.module.hidden.append(variables_of(node))
                entered = True
            case ast.ClassDef() if f"{self.module.name}.{node.name}" in self.names.classes:
                self._class(node)
                self._methods |= {id(each) for each in node.body}
            case ast.Call():
                self._call(node)
            case ast.Attribute():
                self._attribute(node)
            case ast.Assign(targets=targets, value=value):
                self._held(targets, value)
        if why := of_conf(self.module, self.names, node):
            self._say("look", node, ast.unparse(node).split("\n")[0][:80], why)
        if isinstance(node, ast.Call | ast.Attribute) and (why := of_application(self.module, self.names, node)):
            self._say("rewrite", node, ast.unparse(node).split("\n")[0][:80], why)
        for child in ast.iter_child_nodes(node):
            self._visit(child)
        if entered:
            self._selves.pop()
            self._results.pop()
            self.module.hidden.pop()

    # -- definitions ----------------------------------------------------------------------

    def _self_of(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        """Say what a task's decorator means.  Returns the name of its first argument if that is the task."""
        is_bound = id(node) in self._methods
        for decorator in node.decorator_list:
            if not is_task_decorator(self.module, self.names, decorator):
                continue
            options = options_of(decorator)
            bound = options.get("bind")
            is_bound = isinstance(bound, ast.Constant) and bound.value is True
            if isinstance(node, ast.AsyncFunctionDef):
                self._say("rewrite", decorator, f"async def {node.name}", "Use @job of django_jobs.")
            self._options(decorator, f"task {node.name}", options)
        return node.args.args[0].arg if is_bound and node.args.args else ""

    def _options(self, node: ast.AST, what: str, options: Mapping[str | None, ast.expr]) -> None:
        before = len(self.found)
        for name, value in options.items():
            if name is None:
                self._say("look", node, what, "**options: its options are not known here.")
            elif name in TASK_OPTIONS:
                self._say("rewrite", node, f"{what}: {name}", TASK_OPTIONS[name])
            elif name == "serializer" and not (isinstance(value, ast.Constant) and value.value == "json"):
                self._say("rewrite", node, f"{what}: serializer", "Jobs are JSON. Remove it, and pass ids.")
            elif name == "queue":
                self._queue(node, what, value)
            elif name == "base" and not is_base(self.module, self.names, value):
                self._say("look", node, f"{what}: base", "The audit has not seen this class.")
            elif name not in OPTIONS | {"name", "bind", "base", "shared", "lazy"}:
                self._say("rewrite", node, f"{what}: {name}", "Make it an attribute of a class of tasks, base=….")
        if len(self.found) == before:
            self._say("works", node, what)

    def _class(self, node: ast.ClassDef) -> None:
        what, before = f"class {node.name}", len(self.found)
        for verdict, place, name, why in in_class(node):
            self._say(verdict, place, f"{what}.{name}", why)
        if len(self.found) == before:
            self._say("works", node, what)

    # -- call sites --------------------------------------------------------------------------

    def _is_task(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name) and node.id in filter(None, self._selves):
            return True
        return self.names.find(self.module.resolve(node), self.names.tasks) is not None

    def _is_part(self, node: ast.expr) -> bool:
        """Whether it is a signature or a canvas, as it is written."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._is_part(node.left) and self._is_part(node.right)
        if not isinstance(node, ast.Call):
            return False
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in (*_PARTS, "clone", "set", "on_error"):
            return self._is_task(func.value) or self._is_part(func.value)
        return any(is_of_celery(self.module.resolve(func), each) for each in _CANVAS)

    def _call(self, node: ast.Call) -> None:
        func = node.func
        if not isinstance(func, ast.Attribute):
            for name in (*_CANVAS, "signature", "send_task", "AsyncResult"):
                if is_of_celery(self.module.resolve(func), name):
                    self._made(node, name)
            return
        owner, name, what = func.value, func.attr, _short(node)
        is_task, is_part = self._is_task(owner), self._is_part(owner)
        if name == "send_task":
            self._by_name(node, what)
        elif name == "revoke":
            self._revoke(node, what)
        elif name in ("get", "join", "wait", "ready") and self._is_result(owner):
            self._wait(node, what)
        elif name in ("get", "join") and any(self._selves) and _has_no_key(node):
            self._say("look", node, what, "If this is the result of a task: a task must not wait for another.")
        elif is_part and name not in _OF_PARTS:
            self._say("look", node, what, _UNKNOWN)
        elif is_part and name in ("link", "link_error", "on_error"):
            is_group = name == "link" and self._canvas_of(owner) == "group"
            why = "Use chord(group, callback), or link each of its tasks." if is_group else ""
            self._say("rewrite" if is_group else "works", node, what, why)
        elif name in ("delay", "delay_on_commit"):
            self._say(*(("works", node, what) if is_task or is_part else ("look", node, what, _UNKNOWN)))
        elif name in _CALLS - {"apply"} or (name == "apply" and (is_task or is_part)):
            self._apply_async(node, what, is_known=is_task or is_part)
        elif is_task and name in _PARTS:
            self._say("works", node, what)
        elif is_task and name == "retry":
            self._retry(node, what)
        elif name in ("s", "si") and not is_part and any("celery" in each for each in self.module.imports.values()):
            self._say("look", node, what, _UNKNOWN)

    def _made(self, node: ast.Call, name: str) -> None:
        if name in ("signature", "send_task"):
            self._by_name(node, name)
        elif name in _CANVAS and options_of(node).keys() - {"header", "body"}:
            self._say("rewrite", node, f"{name}(…)", "It takes no options: pass them to apply_async.")
        else:
            self._say("works", node, f"{name}(…)")

    def _is_result(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return any(node.id in held for held in self._results)
        if not isinstance(node, ast.Call):
            return False
        func = node.func
        if is_of_celery(self.module.resolve(func), "AsyncResult") or (
            isinstance(func, ast.Call) and self._is_part(func)
        ):
            return True
        return (
            isinstance(func, ast.Attribute)
            and func.attr in _CALLS
            and (self._is_task(func.value) or self._is_part(func.value))
        )

    def _apply_async(self, node: ast.Call, what: str, *, is_known: bool) -> None:
        options, before = options_of(node), len(self.found)
        for name, value in options.items():
            if name is None:
                self._say("look", node, what, "**options: its options are not known here.")
            elif name in CALL_OPTIONS:
                self._say("rewrite", node, f"{what}: {name}", CALL_OPTIONS[name])
            elif name == "queue":
                self._queue(node, what, value)
            elif name == "serializer" and not (isinstance(value, ast.Constant) and value.value == "json"):
                self._say("rewrite", node, f"{what}: serializer", "Jobs are JSON. Remove it, and pass ids.")
            elif name not in KNOWN | {"args", "kwargs", "throw", "retries"}:
                self._say("rewrite" if is_known else "look", node, f"{what}: {name}", "The layer has no such option.")
        for one, other in (("link", "task_id"), ("countdown", "eta")):
            if one in options and other in options:
                self._say("rewrite", node, f"{what}: {one}, {other}", "The two do not go together.")
        if (canvas := self._canvas_of(node.func)) and "task_id" in options:
            self._say(
                "rewrite", node, f"{what}: task_id", "Leave it out: the ids of steps are made of the workflow's id."
            )
        if canvas == "group" and (unfit := sorted(_BACK & options.keys())):
            self._say("rewrite", node, f"{what}: {unfit[0]}", "Link each of its tasks.")
        if len(self.found) == before:
            self._say(*(("works", node, what) if is_known else ("look", node, what, _UNKNOWN)))

    def _canvas_of(self, func: ast.expr) -> str:
        """Return "chain", "group" or "chord" if it is one, or a call of one; "" for all else."""
        owner = func.value if isinstance(func, ast.Attribute) else func
        if isinstance(owner, ast.BinOp):
            return "chain"
        found = [each for each in _CANVAS if isinstance(owner, ast.Call) and self._is_named(owner.func, each)]
        return found[0] if found else ""

    def _is_named(self, func: ast.expr, name: str) -> bool:
        return is_of_celery(self.module.resolve(func), name)

    def _revoke(self, node: ast.Call, what: str) -> None:
        owner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        if not (_is(owner, "control") or self._is_result(owner)):
            self._say("look", node, what, _UNKNOWN)
        elif "signal" in options_of(node):
            self._say("changes", node, f"{what}: signal", "The signal does not matter: the process is ended.")
        else:
            self._say("works", node, what)

    def _wait(self, node: ast.Call, what: str) -> None:
        if any(self._selves) and not what.endswith("ready(…)"):
            self._say("rewrite", node, what, "A task must not wait for another: use a chain or a chord.")
        else:
            self._say("works", node, what)

    def _held(self, targets: list[ast.expr], value: ast.expr) -> None:
        """Remember the names that hold results."""
        for target in targets:
            if isinstance(target, ast.Name):
                held = self._results[-1]
                held.add(target.id) if self._is_result(value) else held.discard(target.id)

    def _queue(self, node: ast.AST, what: str, value: ast.expr) -> None:
        name = value.value if isinstance(value, ast.Constant) else None
        if not isinstance(name, str) or not any(covers(key, name) for key in self.queues):
            shown = f"{name!r} must be" if isinstance(name, str) else "Each of its values must be"
            self._say("changes" if isinstance(name, str) else "look", node, f"{what}: queue",
                      f"{shown} in DJANGO_JOBS['QUEUES'].")  # fmt: skip

    def _retry(self, node: ast.Call, what: str) -> None:
        options = options_of(node)
        unfit = sorted(str(name) for name in options if name not in _RETRY)
        if None in options:
            self._say("look", node, what, "**options: its options are not known here.")
        elif unfit:
            self._say(
                "rewrite", node, f"{what}: {unfit[0]}", "Enqueue a new call with self.apply_async(…), and return."
            )
        else:
            self._say("works", node, what)
            if "queue" in options:
                self._queue(node, what, options["queue"])

    def _by_name(self, node: ast.Call, what: str) -> None:
        first = node.args[0] if node.args else None
        name = first.value if isinstance(first, ast.Constant) else None
        known = self.names.tasks.keys() | self.names.given
        if isinstance(name, str) and name in known:
            self._say("works", node, what)
        else:
            self._say("look", node, what, "Only tasks of this project can be called by name.")

    def _attribute(self, node: ast.Attribute) -> None:
        owner = node.value
        if self._is_task(owner) and node.attr in OF_TASKS:
            self._say("rewrite", node, f"{ast.unparse(owner)}.{node.attr}", OF_TASKS[node.attr])
        elif isinstance(owner, ast.Attribute) and owner.attr == "request" and self._is_task(owner.value):
            verdict: Verdict = "works" if node.attr in _REQUEST else "rewrite" if node.attr in REMEDIES else "look"
            why = "" if verdict == "works" else REMEDIES.get(node.attr, _UNKNOWN)
            self._say(verdict, node, ast.unparse(node), why)
        elif self._is_result(owner) and (node.attr in OF_RESULTS or node.attr in ("children", "save")):
            self._say(
                "rewrite", node, ast.unparse(node)[:80], OF_RESULTS.get(node.attr, "Store the ids of its results.")
            )
        elif _is(owner, "control") and node.attr != "revoke" and self._is_app(owner):
            self._say("rewrite", node, ast.unparse(node), "Use `manage.py jobs workers`, or the admin.")

    def _is_app(self, node: ast.expr) -> bool:
        """Whether it is an attribute of an application."""
        owner = self.module.resolve(node.value) if isinstance(node, ast.Attribute) else ""
        return self.names.find(owner, self.names.apps) is not None


def _has_no_key(node: ast.Call) -> bool:
    """Whether a call of `get` cannot be that of a dictionary."""
    return not node.args and options_of(node).keys() <= {"timeout", "propagate", "interval", "disable_sync_subtasks"}


def _is(node: ast.expr, attribute: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == attribute


def _short(node: ast.Call) -> str:
    text = ast.unparse(node.func)
    return f"{text if len(text) <= 60 else '…' + text[-59:]}(…)"
