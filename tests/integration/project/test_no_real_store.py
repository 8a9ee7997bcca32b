"""A test run reaches no real store unless it asks for one, as with mail; under Django's runner and under pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = """
from pathlib import Path
BASE_DIR = Path(__file__).parent
SECRET_KEY = "x"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_jobs", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DJANGO_JOBS = {"STORE": "redis://nowhere.invalid:1/0"}
"""
JOBS = """
from django_jobs import job

@job
def mail(to):
    return to
"""
#: For both runners.  A unique key that a test leaves behind would keep the next test's job out.
CASES = """
import pathlib
from django.conf import settings
from django.test import SimpleTestCase, TestCase, override_settings
from django_jobs import get_job
from django_jobs.exceptions import StoreUnavailable
from django_jobs.testing import JobsTestMixin
from shop.jobs import mail

class Plain(SimpleTestCase):
    def test_one(self):
        self.assertIsNotNone(mail.enqueue_unique("ada"))
        self.assertIsNone(mail.enqueue_unique("ada"))

    def test_other_settings_change_nothing(self):
        self.assertIsNotNone(mail.enqueue_unique("ada"))
        with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "MAX_PAYLOAD": 100_000}):
            self.assertIsNone(mail.enqueue_unique("ada"))

    def test_a_store_that_the_test_names_is_asked_for(self):
        with override_settings(DJANGO_JOBS={"STORE": "redis://nowhere.invalid:2/0"}):
            with self.assertRaises(StoreUnavailable):
                mail.enqueue("ada")

    def test_the_settings_may_ask_for_one(self):
        path = settings.BASE_DIR / "asked.sqlite3"
        with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "TEST_STORE": f"embedded:{path}"}):
            mail.enqueue("ada")
        self.assertTrue(path.exists())

class Committed(TestCase):
    def test_a_job_goes_to_memory_at_the_commit(self):
        with self.captureOnCommitCallbacks(execute=True):
            handle = mail.enqueue("ada")
        self.assertEqual(get_job(handle.id).state, "queued")

class ClassData(JobsTestMixin, TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.done = mail.enqueue("ada")
        cls.jobs.run_all()
        cls.handle = mail.enqueue("bob")

    def test_the_jobs_of_the_class_are_there(self):
        self.assertEqual([job.args for job in self.jobs.enqueued()], [["bob"]])
        self.assertEqual(self.done.refresh().result, "ada")
        self.jobs.run_all()
        self.assertEqual(self.handle.refresh().state, "succeeded")

    def test_each_test_begins_with_them(self):
        self.jobs.assert_enqueued(mail, ["bob"], count=1)
        self.jobs.run_all()
        self.jobs.assert_not_enqueued()

class Others(JobsTestMixin, TestCase):
    def test_other_classes_do_not_see_them(self):
        self.jobs.assert_not_enqueued()
"""
FUNCTIONS = """
import pytest
from shop.jobs import mail

def test_one():
    assert mail.enqueue_unique("ada") is not None

def test_two():
    assert mail.enqueue_unique("ada") is not None

@pytest.fixture
def waiting():
    return mail.enqueue("eve")

def test_fixtures_before_the_kit_count(waiting, jobs):
    assert jobs.assert_enqueued(mail, ["eve"]) == waiting

class TestOfAClass:
    @pytest.fixture(scope="class", autouse=True)
    def of_class(self):
        return mail.enqueue("bob")

    def test_the_jobs_of_the_class_are_there(self, jobs, of_class):
        jobs.assert_enqueued(mail, ["bob"], count=1)
        jobs.run_all()
        assert of_class.refresh().state == "succeeded"

    def test_each_test_begins_with_them(self, jobs, of_class):
        assert of_class.refresh().state == "queued"
        jobs.assert_enqueued(mail, ["bob"], count=1)

def test_they_end_with_the_class(jobs):
    jobs.assert_not_enqueued()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose settings name a Redis that cannot be reached, and nothing about tests."""
    (tmp_path / "shop").mkdir()
    for name, text in {
        "project_settings.py": SETTINGS, "shop/__init__.py": "", "shop/jobs.py": JOBS, "shop/tests.py": CASES,
        "shop/test_functions.py": FUNCTIONS,
        "pytest.ini": "[pytest]\nDJANGO_SETTINGS_MODULE = project_settings\npythonpath = .\n"
                      "python_files = tests.py test_*.py\n",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    return tmp_path


def run(project: Path, *words: str) -> str:
    """Run a module of Python in the project; its whole output.  Fails if it fails."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "DJANGO"))}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=project, capture_output=True, text=True, timeout=200,
        env={**environment, "PYTHONPATH": f"{ROOT}{os.pathsep}{project}", "DJANGO_SETTINGS_MODULE": "project_settings"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_under_djangos_runner(project: Path) -> None:
    (project / "shop" / "test_functions.py").unlink()
    assert "Ran 8 tests" in run(project, "django", "test", "shop.tests")


def test_under_djangos_runner_in_parallel(project: Path) -> None:
    (project / "shop" / "test_functions.py").unlink()
    assert "Ran 8 tests" in run(project, "django", "test", "shop.tests", "--parallel", "2")


def test_under_pytest(project: Path) -> None:
    assert "14 passed" in run(
        project, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:randomly"
    )


def test_outside_of_tests_the_settings_count(project: Path) -> None:
    code = (
        "import django; django.setup()\n"
        "from shop.jobs import mail\n"
        "from django_jobs.exceptions import StoreUnavailable\n"
        "import django.test.utils\n"
        "try: mail.enqueue('ada')\n"
        "except StoreUnavailable: print('refused')\n"
    )
    (project / "script.py").write_text(code)
    assert "refused" in run(project, "script")
