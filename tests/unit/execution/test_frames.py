"""Where an error came from, and by which release: what tells errors apart, and how it is stored."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.test import override_settings

from django_jobs.archive.rows import read_log
from django_jobs.archive.values import columns_of
from django_jobs.conf import release as releases
from django_jobs.core.outcome import failed_attempt
from django_jobs.core.signature import LENGTH, frame_of, signature
from django_jobs.core.values import Attempt, JobInfo, State
from django_jobs.exceptions import Retry
from django_jobs.stores.redis.connection.entries import attempt_text, read_attempts

BASE = str(Path(__file__).parents[3])


def raised(function: Callable[..., Any], *args: Any) -> BaseException:
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


def signed(error: BaseException, base: str = BASE) -> str:
    return signature(failed_attempt(error, number=1, at=1, frame=frame_of(error, base)))


def price(prices: dict[str, int], name: str) -> int:
    if name.isupper():
        return prices[name]
    return prices[name.lower()]


def fetch(status: int) -> None:
    raise ConnectionError(f"{status} from 'bank'")


def test_an_error_is_its_class_and_the_last_line_of_the_projects_own_code() -> None:
    assert signed(raised(price, {}, "a")) == signed(raised(price, {}, "b")) != signed(raised(price, {}, "B"))
    assert signed(raised(fetch, 500)) == signed(raised(fetch, 503))
    frame = "tests/unit/execution/test_frames.py, in fetch: raise ConnectionError(f\"{status} from 'bank'\")"
    assert frame_of(raised(fetch, 500), BASE) == frame
    # Other people's code is passed over: json raises far below.
    assert frame_of(raised(json.loads, "{"), BASE).startswith("tests/unit/execution/test_frames.py, in raised: ")
    assert frame_of(raised(json.loads, "{"), BASE) == frame_of(raised(json.loads, "["), BASE)


def test_a_retry_is_the_error_from_which_it_was_raised() -> None:
    def again(status: int) -> None:
        try:
            fetch(status)
        except ConnectionError as error:
            raise Retry("later", in_=5) from error

    error = raised(again, 500)
    line = failed_attempt(error, number=1, at=1, frame=frame_of(error, BASE))
    assert signed(error) == signed(raised(fetch, 503)) != signed(raised(price, {}, "a"))
    assert (line.error_type, line.error) == ("builtins.ConnectionError", "500 from 'bank'")
    assert "Retry: later" in line.traceback


def test_without_code_of_the_project_an_error_is_its_class_and_the_shape_of_its_message() -> None:
    text = "Traceback"
    errors = [Attempt(1, "failed", 1, error_type="E", error=each, traceback=text) for each in ("no 5", "no 7", "not")]
    first, second, third = map(signature, errors)
    assert first == second == "E: no …" != third
    assert frame_of(ValueError(), BASE) == ""


def test_a_module_counts_and_not_the_folder_in_which_it_is_installed(tmp_path: Path) -> None:
    source = "def go():\n    raise KeyError('x')\n"
    found = set()
    for folder in ("release-1", "release-2"):
        path = tmp_path / folder / "jobs.py"
        path.parent.mkdir()
        path.write_text(source)
        module = ModuleType("shop.jobs")
        exec(compile(source, str(path), "exec"), module.__dict__)
        found.add(frame_of(raised(module.go), str(path.parent)))
        # A file for the moment has another name each time: the place that called it counts.
        assert frame_of(raised(module.go), BASE).startswith("tests/unit/execution/test_frames.py, in raised")
    assert found == {"jobs.py, in go: raise KeyError('x')"}


def test_a_recursion_is_one_error_wherever_it_ends() -> None:
    def one(n: int) -> int:
        return other(n) + 1

    def other(n: int) -> int:
        return one(n) - 1

    limit, found = sys.getrecursionlimit(), set()
    try:
        for more in range(4):
            sys.setrecursionlimit(limit + more)
            found.add(signed(raised(one, 1)))
    finally:
        sys.setrecursionlimit(limit)
    assert len(found) == 1


def test_odd_code_and_long_names_have_a_signature_of_bounded_length() -> None:
    names = [f"f{'x' * 300}{n}" for n in range(2)]
    found = set()
    for name in names:
        scope: dict[str, Any] = {"__name__": object()}
        exec(compile(f"def {name}():\n    raise KeyError", f"{BASE}/\x07\n{'d' * 300}.py", "exec"), scope)
        error = raised(scope[name])
        found.add(signed(error))
        assert frame_of(error, BASE).isprintable()
    assert len(found) == 2
    assert all(len(each.encode()) <= LENGTH for each in found)
    scope = {}
    exec("def go():\n    raise KeyError", scope)
    scope["go"].__code__ = scope["go"].__code__.replace(co_filename="a\0b")
    assert frame_of(raised(scope["go"]), BASE) == ""


def test_the_log_and_the_archive_keep_release_and_frame_in_lines_that_version_0_2_0_reads() -> None:
    fields = ["attempt", "outcome", "at", "run_ms", "worker", "error_type", "error", "traceback"]
    for trace in ("Traceback\n  line\n", ""):
        attempt = Attempt(2, "failed", 5, 7, "w", "E", "no", trace, "v1", "shop/jobs.py, in pay: x")
        line = attempt_text(attempt).partition("\n")[0]
        assert sorted([*json.loads(line), "at"]) == sorted(fields)
        assert read_attempts(b'{"at":5,' + line[1:].encode()) == (attempt,)
        info = JobInfo("a", "q", b"", State.DEAD, attempts=(attempt, Attempt(1, "killed", 3)))
        log = columns_of(info)["log"]
        assert [len(each) for each in json.loads(log)] == [len(fields)] * 2
        assert read_log(log) == info.attempts
    assert read_attempts(b'{"attempt":1,"outcome":"failed","at":1,"traceback":"\\u001f"}')[0].release == ""


def git(folder: Path, *words: str) -> str:
    named = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", *named, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_release_is_the_commit_that_is_checked_out(tmp_path: Path) -> None:
    main, other = tmp_path / "main", tmp_path / "other"
    (main / "src").mkdir(parents=True)
    assert releases.commit(main) == ""
    git(main, "init", "-q")
    assert releases.commit(main) == ""
    git(main, "commit", "-q", "--allow-empty", "-m", "a")
    for step in (["pack-refs", "--all"], ["worktree", "add", "-q", str(other), "-b", "side"], ["checkout", "--detach"]):
        head = git(main, "rev-parse", "HEAD")
        assert len(head) == 40
        assert releases.commit(main / "src") == head
        git(main, *step)
    assert releases.commit(main) == head
    git(other, "commit", "-q", "--allow-empty", "-m", "b")
    assert releases.commit(other) == git(other, "rev-parse", "HEAD") != head


@pytest.mark.parametrize(
    ("name", "value", "release"),
    [
        ("HEROKU_SLUG_COMMIT", "ab" * 20, "abababababab"),
        ("K_REVISION", "shop-00007-x", "shop-00007-x"),
        ("GAE_VERSION", "a\nb", ""),
        ("SOURCE_VERSION", "x" * 201, ""),
    ],
)
def test_the_variables_of_platforms_name_a_release(
    name: str, value: str, release: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for each in releases.VARIABLES:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, value)
    releases.found.cache_clear()
    try:
        with override_settings(DJANGO_JOBS={"STORE": "memory"}, BASE_DIR=tmp_path):
            assert releases.release() == release
        with override_settings(DJANGO_JOBS={"STORE": "memory", "RELEASE": ""}, BASE_DIR=tmp_path):
            assert releases.release() == ""
        with override_settings(DJANGO_JOBS={"STORE": "memory", "RELEASE": "v7"}, BASE_DIR=tmp_path):
            assert releases.release() == "v7"
        with override_settings(DJANGO_JOBS={"STORE": "memory", "RELEASE": 7}, BASE_DIR=tmp_path):
            assert releases.release() == release
    finally:
        releases.found.cache_clear()
