"""Every mutant fits the code as it is and names tests that exist; `make mutants` then runs them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tools.mutants import FOLDER, ROOT, applies, read

PATHS = sorted(FOLDER.glob("*.patch"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_it_says_what_it_breaks_fits_the_code_and_names_tests_that_exist(path):
    mutant = read(path)
    assert applies(mutant, ROOT, check_only=True), "make the patch again: the code has changed"
    for test in mutant.tests:
        file, *names = test.split("::")
        text = (ROOT / file).read_text()
        missing = [name for name in names if name.split("[")[0] not in text]
        assert not missing, f"{file} has no {missing}"


def test_the_cases_that_they_name_exist():
    """One that does not ends the run of all."""
    cases = sorted({test for path in PATHS for test in read(path).tests if "[" in test})
    assert cases
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *cases]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"STORES": "redis"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
