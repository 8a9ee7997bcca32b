"""Which modules hold jobs and tasks.  A worker imports them at its start and looks nowhere else."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules, import_string

from django_jobs.conf import given_modules, task_backends


def discover() -> None:
    """Import the modules: those of every installed app, and those that MODULES gives by their full path."""
    for name in module_names():
        autodiscover_modules(name)
        if "." in name and _in_apps(name) == 0 and _exists(name):
            import_module(name)


def module_names() -> list[str]:
    """Return MODULES; if it is not set, "jobs", and "tasks" if TASKS uses our backend."""
    given = given_modules()
    if given is not None:
        return given
    return ["jobs", "tasks"] if runs_tasks() else ["jobs"]


def runs_tasks() -> bool:
    """Return whether TASKS names our backend or a subclass of it."""
    return any(runs_as_jobs(path) for path in task_backends())


def missing() -> list[str]:
    """Return the dotted names in MODULES that exist neither in an app nor as modules of their own."""
    return [name for name in module_names() if "." in name and not _in_apps(name) and not _exists(name)]


def remedy(module: str) -> str:
    """Return the advice that makes workers find the jobs of that module."""
    app = apps.get_containing_app_config(module)
    if module == "__main__":
        return "Move it into a module that workers can import, such as jobs.py of an installed app."
    name = module.removeprefix(f"{app.name}.") if app is not None and module != app.name else module
    wanted = [*module_names(), name]
    return f"Move it to a module with one of the names {module_names()}, or set DJANGO_JOBS['MODULES'] = {wanted}."


def runs_as_jobs(path: str) -> bool:
    """Return whether the class with that path is our backend or a subclass of it."""
    try:
        return bool(getattr(import_string(path), "runs_as_jobs", False))
    except (ImportError, ImproperlyConfigured):
        return False  # Django reports this itself when the backend is used


def _in_apps(name: str) -> int:
    """Return how many apps have such a module."""
    return sum(_exists(f"{config.name}.{name}") for config in apps.get_app_configs())


def _exists(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
