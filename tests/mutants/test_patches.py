"""Every mutant fits the code as it is and names tests that exist; `make mutants` then runs them."""

from __future__ import annotations

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
