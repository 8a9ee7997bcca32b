"""`jobs audit-celery` says of each place of a project what becomes of it, and never wrongly that it works."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_jobs.compat.audit import audit
from django_jobs.compat.audit.findings import CallSite
from django_jobs.compat.celery import crontab

HERE = Path(__file__).parent / "audited"
SETTINGS = {
    "INSTALLED_APPS": ["django_celery_beat", "audited.shop"],
    "DJANGO_JOBS": {"QUEUES": {"default": {}, "mail": {}}},
    "CELERY_TASK_SERIALIZER": "pickle",
    "CELERY_BROKER_URL": "redis://localhost",
    "CELERY_WORKER_CONCURRENCY": 3,
    "CELERY_UNHEARD_OF": 3,
    "CELERY_TASK_ACKS_LATE": True,
    "CELERY_BEAT_SCHEDULE": {
        "a": {"task": "x", "schedule": crontab(hour=3)},
        "b": {"task": "x", "schedule": 0.5},
        "c": {"task": "x", "schedule": object()},
    },
}

#: file, a part of what is said, and the verdict.
EXPECTED = """
    settings.py        CELERY_TASK_SERIALIZER       rewrite
    settings.py        CELERY_BROKER_URL            changes
    settings.py        CELERY_WORKER_CONCURRENCY    changes
    settings.py        CELERY_UNHEARD_OF            look
    settings.py        CELERY_TASK_ACKS_LATE        works
    settings.py        SCHEDULE['a']                works
    settings.py        SCHEDULE['b']                rewrite
    settings.py        SCHEDULE['c']                look
    settings.py        django_celery_beat           rewrite
    celery_app.py      task_default_queue           look
    shop/tasks.py      import Ignore                works
    shop/tasks.py      WorkerShutdown               rewrite
    shop/tasks.py      import task_failure          works
    shop/tasks.py      worker_ready                 rewrite
    shop/tasks.py      get_task_logger              works
    shop/tasks.py      Base.rate_limit              rewrite
    shop/tasks.py      plain                        works
    shop/tasks.py      task bound                   works
    shop/tasks.py      self.request.id              works
    shop/tasks.py      self.request.root_id         rewrite
    shop/tasks.py      self.request.unheard_of      look
    shop/tasks.py      plain.delay(1).get           rewrite
    shop/tasks.py      self.replace                 rewrite
    shop/tasks.py      self.retry(…)                works
    shop/tasks.py      self.retry(…)                works
    shop/tasks.py      self.retry(…): queue         changes
    shop/tasks.py      self.retry(…): throw         rewrite
    shop/tasks.py      limited: rate_limit          rewrite
    shop/tasks.py      coloured: colour             rewrite
    shop/tasks.py      asynchronous                 rewrite
    shop/views.py      current_app                  rewrite
    shop/views.py      kombu                        rewrite
    shop/views.py      plain.delay(…)               works
    shop/views.py      tasks.bound.apply_async      works
    shop/views.py      plain.apply_async(…)         works
    shop/views.py      plain.apply_async(…): queue  changes
    shop/views.py      routing_key                  rewrite
    shop/views.py      link, task_id                rewrite
    shop/views.py      thing.delay                  look
    shop/views.py      thing.apply_async            look
    shop/views.py      on_error                     works
    shop/views.py      delay(1).get                 works
    shop/views.py      revoke                       works
    shop/views.py      group(plain.s(1)).apply_async works
    shop/views.py      send_task                    look
    shop/views.py      result.get(…)                works
    shop/views.py      revoke(…): signal            changes
    shop/views.py      group(plain.s(1)).link       rewrite
    shop/views.py      .apply_async(…): link_error  rewrite
    shop/views.py      .apply_async(…): task_id     rewrite
    shop/views.py      plain.s(3).freeze            look
    shop/views.py      result.collect               rewrite
    shop/views.py      .on_error(plain.s()).delay   works
    shop/views.py      chord(…)                     rewrite
    celery_app.py      app.conf.update              look
    celery_app.py      app.conf['timezone']         look
    celery_app.py      autodiscover_tasks           rewrite
    celery_app.py      app.worker_main              rewrite
    celery_app.py      loader                       rewrite
    celery_app.py      config_from_object('shop     rewrite
    shop/tasks.py      Replacing.apply_async        changes
    shop/tasks.py      Limited.rate_limit           rewrite
    shop/tasks.py      of_class                     works
    shop/tasks.py      of_another: base             look
    shop/tasks.py      held.get(…)                  rewrite
    shop/tasks.py      a.get(…)                     look
"""


@pytest.fixture(scope="module")
def found() -> list[CallSite]:
    return list(audit(HERE, SETTINGS, HERE / "settings.py"))


@pytest.mark.parametrize("row", EXPECTED.strip().splitlines(), ids=lambda row: " ".join(row.split()))
def test_each_place_is_judged(found: list[CallSite], row: str) -> None:
    path, *words, verdict = row.split()
    said = [each for each in found if str(each.path) == path and " ".join(words) in each.what]
    assert verdict in {each.verdict for each in said}
    assert all(each.why for each in said if each.verdict != "works")


def test_what_must_be_rewritten_is_never_said_to_work_as_well(found: list[CallSite]) -> None:
    """Each line with a fault of its own has no second finding that hides it."""
    works = {(each.path, each.line, each.what) for each in found if each.verdict == "works"}
    assert not works & {(each.path, each.line, each.what) for each in found if each.verdict != "works"}


def test_every_call_of_a_project_is_found(found: list[CallSite]) -> None:
    """Each line of views.py that calls something has a finding."""
    lines = (HERE / "shop" / "views.py").read_text().splitlines()
    calls = {number for number, line in enumerate(lines, 1) if line.startswith("    ")}
    assert calls == {each.line for each in found if each.path.name == "views.py" and each.line > 9}


def test_a_parameter_is_not_what_the_module_has_of_its_name(found: list[CallSite]) -> None:
    assert not [each for each in found if "app.tokens" in each.what]
    assert [each.verdict for each in found if each.what == "plain.delay(…)" and each.path.name == "tasks.py"] == [
        "works", "works", "look",
    ]  # fmt: skip


def test_the_get_of_a_dictionary_is_none_of_a_result(found: list[CallSite]) -> None:
    assert len([each for each in found if each.what == "a.get(…)"]) == 1


def test_what_the_audit_says_of_a_call_is_the_only_thing_that_it_says_of_it(found: list[CallSite]) -> None:
    """A line with one fault, and nothing else, has one finding that is no "works"."""
    lines = (HERE / "shop" / "views.py").read_text().splitlines()
    for text, verdict in (("link=plain.s(), link_error=", "works"), ("countdown=3)", "works"), ("freeze", "look")):
        (number,) = [n for n, line in enumerate(lines, 1) if text in line and "bound" not in line]
        said = {each.verdict for each in found if each.path.name == "views.py" and each.line == number}
        assert said - {"works"} == {verdict} - {"works"}


def test_an_unknown_option_is_looked_at(found: list[CallSite]) -> None:
    lines = (HERE / "shop" / "views.py").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "**options" in text)
    assert {each.verdict for each in found if each.path.name == "views.py" and each.line == line} == {"look"}


def test_the_command_prints_places_and_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(
        "from celery import shared_task\n\n@shared_task(rate_limit='1/s')\ndef f(): ...\n\n@shared_task\ndef g(): ...\n"
    )
    out = StringIO()
    with override_settings(BASE_DIR=tmp_path), pytest.raises(SystemExit) as ended:
        call_command("jobs", "audit-celery", stdout=out)
    assert ended.value.code == 1
    lines = out.getvalue().splitlines()
    (works,) = [number for number, line in enumerate(lines) if "works as it is" in line and "tasks.py:6" in line]
    (rewrite,) = [number for number, line in enumerate(lines) if "must be rewritten" in line and "tasks.py:3" in line]
    assert works < rewrite
    (tmp_path / "tasks.py").write_text("from celery import shared_task\n\n@shared_task\ndef f(): ...\n")
    out = StringIO()
    with override_settings(BASE_DIR=tmp_path):
        call_command("jobs", "audit-celery", "--json", stdout=out)
    assert {each["verdict"] for each in json.loads(out.getvalue())} == {"works as it is"}


#: A task with an option that must be rewritten, and a name that is not ASCII.
REWRITE = "from celery import shared_task\n\nprix = 'é'\n\n@shared_task(rate_limit='1/s')\ndef f(): ...\n"


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        (REWRITE.encode(), "rewrite"),
        (b"\xef\xbb\xbf" + REWRITE.encode(), "rewrite"),
        (b"# -*- coding: latin-1 -*-\n" + REWRITE.encode("latin-1"), "rewrite"),
        (REWRITE.encode("latin-1"), "look"),
        (b"# -*- coding: nothing -*-\n" + REWRITE.encode(), "look"),
        (REWRITE.encode() + b"\0", "look"),
        (REWRITE.encode() + b"x = " + b"-" * 20_000 + b"1\n", "look"),
        (REWRITE.encode() + b"x = " + b"+".join([b"1"] * 20_000) + b"\n", "look"),
        (REWRITE.encode() + b"x = f" + b".delay()" * 500 + b"\n", "look"),
        (REWRITE.encode() + b"x = f" + b".delay" * 2000 + b"()\n", "look"),
        (None, "works"),
    ],
    ids=["utf8", "bom", "latin1", "undeclared", "unknown", "nul", "signs", "sum", "calls", "names", "no-file"],
)
def test_a_module_is_read_as_python_reads_it_and_one_that_cannot_be_keeps_none_from_being_read(
    tmp_path: Path, source: bytes | None, verdict: str
) -> None:
    (tmp_path / "views.py").write_text("from celery import shared_task\n")
    if source is None:
        (tmp_path / "folder.py").mkdir()
        (tmp_path / "gone.py").symlink_to("nowhere.py")
    else:
        (tmp_path / "tasks.py").write_bytes(source)
    said = audit(tmp_path, {})
    assert {str(each.path) for each in said} == {"views.py", *(["tasks.py"] if source else [])}
    assert verdict in {each.verdict for each in said}
