"""Classes of tasks, and applications: what a project has replaced of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from django_jobs.compat.audit.findings import Verdict
from django_jobs.compat.audit.modules import DefinedNames, Module, is_of_celery, options_of
from django_jobs.compat.celery.app import OF_CELERY, Celery
from django_jobs.compat.celery.missing import OF_TASKS, TASK_OPTIONS

#: What a class of tasks may replace, and how far that counts here.
_REPLACED = {
    "apply_async": "It is called for tasks that are enqueued alone, not for parts of a chain, a group or a chord.",
    "delay": "It is called for task.delay() only.",
    "retry": "autoretry_for does not call it.",
    "apply": "It is called for eager tasks that are enqueued alone, and for task.apply().",
}
_IN_CONF = "Move it to Django's settings, where the audit reads it."
_OF_APP = "Use the names of django_jobs.compat.celery."


def in_class(node: ast.ClassDef) -> Iterator[tuple[Verdict, ast.stmt, str, str]]:
    """Yield (verdict, place, name, reason) for what a class of tasks defines and the layer uses otherwise."""
    for each in node.body:
        names = [each.name] if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else []
        targets = [each.target] if isinstance(each, ast.AnnAssign) else getattr(each, "targets", [])
        names += [target.id for target in targets if isinstance(target, ast.Name)]
        for name in names:
            if remedy := OF_TASKS.get(name) or TASK_OPTIONS.get(name):
                yield "rewrite", each, name, remedy
            elif name in _REPLACED:
                yield "changes", each, name, _REPLACED[name]


def of_application(module: Module, names: DefinedNames, node: ast.expr) -> str:
    """Return why an attribute or a call of an application does not work; "" if it does, or is of something else."""
    if isinstance(node, ast.Call) and is_of_celery(module.resolve(node.func), "Celery"):
        unfit = sorted(str(name) for name in options_of(node) if name in OF_CELERY)
        return f"{unfit[0]} means nothing here: remove it." if unfit else ""
    if isinstance(node, ast.Attribute) and _is_application(module, names, node.value):
        return "" if node.attr in (*dir(Celery), "control", "conf", "main", *_EVENTS) else _OF_APP
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner, name = node.func.value, node.func.attr
        if _is_application(module, names, owner):
            return _of_call(name, node)
    return ""


_EVENTS = ("on_after_configure", "on_after_finalize", "AsyncResult", "task_cls")


def of_conf(module: Module, names: DefinedNames, node: ast.AST) -> str:
    """Return what to do with `app.conf.update(…)`, `app.conf["…"]` and an assignment to `app.conf`; "" for all else."""
    owner: ast.expr | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = node.func.value
    elif isinstance(node, ast.Subscript):
        owner = node.value
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
        target = node.targets[0]
        owner = target if target.attr == "conf" else target.value
    is_conf = isinstance(owner, ast.Attribute) and owner.attr == "conf"
    return _IN_CONF if is_conf and _is_application(module, names, owner.value) else ""  # type: ignore[union-attr]


def _of_call(name: str, node: ast.Call) -> str:
    options = options_of(node)
    if name == "autodiscover_tasks":
        related = options.get("related_name")
        if related is not None and not (isinstance(related, ast.Constant) and related.value == "tasks"):
            return "Name the module in DJANGO_JOBS['MODULES']."
    if name == "config_from_object":
        first = node.args[0] if node.args else None
        namespace = options.get("namespace") or (node.args[3] if len(node.args) > 3 else None)
        is_django = isinstance(first, ast.Constant) and first.value in ("django.conf:settings", "django.conf.settings")
        if not (is_django and isinstance(namespace, ast.Constant) and namespace.value == "CELERY"):
            return "Write app.config_from_object('django.conf:settings', namespace='CELERY'), and name settings so."
    return ""


def _is_application(module: Module, names: DefinedNames, node: ast.expr) -> bool:
    return names.find(module.resolve(node), names.apps) is not None
