"""Every Python block of the documents runs, page by page, as a reader would type it."""

from __future__ import annotations

import re
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import django
import pytest
from django.test import override_settings
from django.utils.module_loading import import_string

from django_jobs import checks
from django_jobs.core import registry
from django_jobs.testing import Jobs
from tests.docs.pages import PAGES, blocks, name

#: Folders that a page names and that are packages here, too.
PACKAGES = {"django_jobs", "tests", "example_project"}
#: The tutorial runs as a whole project: test_tutorial.py.
WITH_CODE = [page for page in PAGES if blocks(page, "python") and page.name != "tutorial.md"]


@pytest.fixture
def module(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """An importable module for the code of one page; its jobs are forgotten afterwards."""
    made = ModuleType("page_" + request.node.callspec.id.replace("/", "_").replace(".", "_").replace("-", "_"))
    sys.modules[made.__name__] = made
    before = set(registry.names())
    yield made
    for job in set(registry.names()) - before:
        registry.unregister(job)
    del sys.modules[made.__name__]


@pytest.mark.accepts("K32")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_the_code_of_a_page_runs_from_top_to_bottom(
    page: Path, module: ModuleType, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for block in blocks(page, "python"):
        if is_for_a_newer_django(block.code):
            continue
        # Line numbers of errors are those of the page.
        code = compile("\n" * (block.line - 1) + for_this_django(block.code), str(page), "exec")
        if (file := re.match(r"# (\w+)/(\w+)\.py\b", block.code)) and file[1] not in PACKAGES:
            # Later blocks import what this one defines, by the name of its file.
            monkeypatch.setitem(sys.modules, file[1], ModuleType(file[1]))
            monkeypatch.setitem(sys.modules, f"{file[1]}.{file[2]}", module)
        if block.code.startswith("# settings.py"):
            check_settings(code)
        else:
            exec(code, module.__dict__)
            run_tests_of(module, jobs)


def is_for_a_newer_django(code: str) -> bool:
    """Does it begin with "# Django 6.1", and is this an older one?"""
    first = re.match(r"# Django (\d+)\.(\d+)\n", code)
    return first is not None and (int(first[1]), int(first[2])) > django.VERSION


def for_this_django(code: str) -> str:
    """Before Django 6 the tasks framework is a package of its own; the page says so."""
    return code if django.VERSION >= (6, 0) else code.replace("from django.tasks", "from django_tasks")


def check_settings(code: Any) -> None:
    """Run a block of settings on top of some others; the system checks must have nothing to say about it."""
    settings: dict[str, Any] = {"INSTALLED_APPS": ["django.contrib.contenttypes"], "MIDDLEWARE": []}
    exec(code, settings)
    if "DJANGO_JOBS" in settings:
        with override_settings(DJANGO_JOBS=settings["DJANGO_JOBS"]):
            assert checks.check_settings() == []
    for alias, backend in settings.get("TASKS", {}).items():
        assert import_string(backend["BACKEND"])(alias, backend).check() == []


def run_tests_of(module: ModuleType, jobs: Jobs) -> None:
    """Run the tests that a block defines, functions and cases, and take them away."""
    for key, value in list(vars(module).items()):
        if key.startswith("test_"):
            value(jobs)
            del module.__dict__[key]
        elif isinstance(value, type) and issubclass(value, unittest.TestCase) and value.__module__ == module.__name__:
            result = unittest.TestResult()
            unittest.defaultTestLoader.loadTestsFromTestCase(value).run(result)
            assert result.testsRun > 0
            assert (result.errors, result.failures) == ([], [])
            del module.__dict__[key]
