"""The reference names what there is, no more and no less, and no link leads nowhere."""

from __future__ import annotations

import re
import shlex
import tomllib
from argparse import ArgumentParser
from ast import literal_eval
from contextlib import suppress
from inspect import isfunction
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.dispatch import Signal

from django_jobs import operating, operations, signals
from django_jobs.conf import Settings, read
from django_jobs.conf.values import KEYS, QUEUE_KEYS
from django_jobs.core.options.declared import KNOWN
from django_jobs.core.values import State
from django_jobs.management.commands.runworkers import Command as RunWorkers
from django_jobs.management.jobs_commands import SUBCOMMANDS
from django_jobs.models import Dashboard
from django_jobs.stores.redis.connection import scripts
from django_jobs.stores.redis.connection.keys import QUEUE_KEYS as REDIS_KEYS
from tests.docs.pages import PAGES, ROOT, blocks, column, links, name
from tools.acceptance import SOURCE, marks


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_inside_the_project_lead_somewhere(page: Path) -> None:
    inside = [urlsplit(link) for link in links(page)]
    missing = [link.path for link in inside if not link.scheme and link.path and not (page.parent / link.path).exists()]
    assert missing == []


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            targets = [link.split("#")[0] for link in links(page)]
            waiting += [(page.parent / target).resolve() for target in targets if target.endswith(".md")]
    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs")} <= seen


def test_every_setting_is_in_the_reference() -> None:
    assert column("reference/settings.md", "key") == {*KEYS, *QUEUE_KEYS}


def defaults() -> dict[str, object]:
    """Name of a setting → the default that the reference gives; those that depend on the machine or on others are left
    out."""
    found = {}
    text = (ROOT / "docs/reference/settings.md").read_text()
    for key, default in re.findall(r"^\| `([A-Z_]+)` \| `([^`]+)` \|", text, re.MULTILINE):
        with suppress(ValueError):
            found[key] = literal_eval(default)
    return found


def read_with(key: str, value: object) -> Settings:
    if key in QUEUE_KEYS:
        return read({"STORE": "memory", "QUEUES": {"default": {key: value}}})
    return read({"STORE": "memory", key: value})


def other_than(value: object) -> object:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "2"
        case list():
            return ["shop.other"]
        case dict():
            return {key: other_than(each) for key, each in value.items() if key != "default"} or {"other": {}}
    return {"DAYS": 7}


@pytest.mark.accepts("K23")
@pytest.mark.parametrize(("key", "default"), defaults().items())
def test_every_setting_counts_and_has_the_default_of_the_reference(key: str, default: object) -> None:
    assert read_with(key, default) == read({"STORE": "memory"})
    assert read_with(key, other_than(default)) != read({"STORE": "memory"})


def test_every_job_option_is_in_the_reference() -> None:
    assert column("reference/job-options.md", "option") == KNOWN


@pytest.mark.accepts("G69")
def test_every_state_is_in_the_reference() -> None:
    assert column("reference/states.md", "state") == set(State)


def test_every_signal_is_in_the_reference() -> None:
    known = {key for key, value in vars(signals).items() if isinstance(value, Signal)}
    assert column("reference/signals.md", "signal") == known


def test_every_option_of_runworkers_is_in_the_reference() -> None:
    parser = RunWorkers().create_parser("manage.py", "runworkers")
    django = {"--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color", "--force-color"}
    django |= {"--help", "--skip-checks"}
    ours = {
        option for action in parser._actions for option in action.option_strings if option.startswith("--")
    } - django
    assert {word.split()[0] for word in column("reference/commands.md", "option")} == ours


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_line_is_one_that_the_commands_understand(page: Path) -> None:
    """As in `manage.py runworkers --threads 8`, and as a YAML list of a container's command."""
    text = re.sub(r"\[python, manage\.py, (.*?)\]", lambda m: "manage.py " + m[1].replace(",", ""), page.read_text())
    text = re.sub(r'\["python", "manage\.py", (.*?)\]', lambda m: "manage.py " + m[1].replace(",", ""), text)
    for line in re.findall(r"(?:manage\.py |`)((?:runworkers|jobs) [^`\n\]|&;#…]*)", text):
        command, *words = shlex.split(line.rstrip(".,:) "))
        if command == "runworkers" and words and words[0].startswith("-"):
            RunWorkers().create_parser("manage.py", "runworkers").parse_args(words)
        elif command == "jobs" and words and words[0].isalpha():
            assert words[0] in SUBCOMMANDS, line


def test_the_life_of_a_job_names_files_that_exist() -> None:
    told, *_ = [block.code for block in blocks(ROOT / "docs/contributing/internals.md", "")]
    package = ROOT / "django_jobs"
    for file in re.findall(r"[\w/]+\.(?:py|lua)\b", told):
        found = [path for path in package.rglob(file.rsplit("/", 1)[-1]) if str(path).endswith("/" + file)]
        assert found, f"{file} is not in the package"


def test_every_system_check_is_in_the_reference() -> None:
    code = "".join(path.read_text() for path in (ROOT / "django_jobs").rglob("*.py"))
    found = re.findall(r'id=(?:_id\(")?"?(?:django_jobs\.)?([EW]\d{3})\b', code)
    assert column("reference/checks.md", "id") == {f"django_jobs.{id}" for id in found}


@pytest.mark.parametrize("page", ["howto/admin.md", "howto/security.md"])
def test_every_permission_is_on_the_page(page: str) -> None:
    known = {name for name, _ in Dashboard._meta.permissions}
    assert {name.removeprefix("django_jobs.") for name in column(page, "permission")} == known


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_option_of_a_jobs_command_exists(page: Path) -> None:
    """Wherever a page writes `jobs NAME … --option`, and in the table of commands."""
    lines = re.findall(r"(?:manage\.py |`)(jobs [^`\n|#;]*)", page.read_text())
    if page.name == "commands.md":
        rows = [row.split("|")[1] for row in page.read_text().splitlines() if row.startswith("| `")]
        lines += [f"jobs {code}" for row in rows for code in re.findall(r"`([a-z]+ ?[^`]*)`", row)]
    unknown = []
    for line in lines:
        words = line.split()
        if len(words) > 1 and words[1] in SUBCOMMANDS:
            parser = ArgumentParser()
            SUBCOMMANDS[words[1]].arguments(parser)
            known = {option for action in parser._actions for option in action.option_strings} | {"--json"}
            unknown += [line for option in re.findall(r"--[a-z-]+", line) if option not in known]
    assert unknown == []


def test_every_subcommand_of_jobs_is_in_the_reference() -> None:
    told = (ROOT / "docs" / "reference" / "commands.md").read_text()
    assert [name for name in SUBCOMMANDS if not re.search(rf"`{name}[ `]", told)] == []


def test_no_page_names_a_folder_of_the_machine_it_was_written_on() -> None:
    for page in PAGES:
        assert not re.search(r"\.\./shared|/(tmp|work|root|home)/", page.read_text()), name(page)


def test_every_key_on_redis_is_in_the_table_of_the_internals() -> None:
    assert column("contributing/internals.md", "key") == set(REDIS_KEYS)


def test_the_table_of_keys_says_their_types() -> None:
    told = {}
    for row in (ROOT / "docs" / "contributing" / "internals.md").read_text().splitlines():
        if len(cells := row.split("|")) == 5 and (keys := re.findall(r"`(\w+)`", cells[1])):
            told |= {key: cells[2].split(",")[0].strip() for key in keys}
    assert {key: told[key] for key in REDIS_KEYS} == REDIS_KEYS


def test_every_script_is_in_the_table_of_the_internals_and_begins_with_what_it_does() -> None:
    assert column("contributing/internals.md", "script") == set(scripts.names())
    lua = ROOT / "django_jobs" / "stores" / "redis" / "lua"
    files = {path.stem: path for path in lua.glob("*/*.lua") if path.parent.name != "lib"}
    assert sorted(files) == scripts.names()
    nameless = [name for name, path in files.items() if not path.read_text().startswith(f"-- {name}: ")]
    assert nameless == []


def test_every_picture_is_shown_on_a_page() -> None:
    shown = {(page.parent / link).resolve() for page in PAGES for link in links(page) if "://" not in link}
    assert {path for path in (ROOT / "docs" / "images").iterdir() if path not in shown} == set()


def test_the_diagram_of_states_has_every_state() -> None:
    drawn = re.findall(r'font-weight="600">(\w+)<', (ROOT / "docs" / "images" / "states.svg").read_text())
    assert sorted(drawn) == sorted(State)


def test_every_page_is_named_in_the_index_itself() -> None:
    """The site's side bar lists all pages of a folder; a reader of the index must find them, too."""
    docs = ROOT / "docs"
    named = {(docs / link.split("#")[0]).resolve() for link in links(docs / "index.md")}
    assert [name(page) for page in PAGES if page.is_relative_to(docs) and page not in {*named, docs / "index.md"}] == []


def test_the_readme_has_absolute_links_to_pages_and_files_that_exist() -> None:
    """A package index shows the README without the files beside it."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    source = urls["Source"] + "/blob/main/"
    for link in links(ROOT / "README.md"):
        if link.startswith(urls["Documentation"]):
            page = link.removeprefix(urls["Documentation"]).split("#")[0]
            image = page.startswith("_images/")
            path = "docs/images/" + page.removeprefix("_images/") if image else f"docs/{page.removesuffix('.html')}.md"
        else:
            assert link.startswith(source), link
            path = link.removeprefix(source)
        assert (ROOT / path).is_file(), link
    assert all(url.startswith((urls["Source"], urls["Documentation"])) for url in urls.values())


def test_every_address_of_the_project_is_one_of_those_in_its_metadata() -> None:
    """A new home of the source or of the documents is written in pyproject.toml; this names what else must change."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bases = (project["urls"]["Source"], project["urls"]["Documentation"])
    deploy = [file for file in (ROOT / "deploy").rglob("*.*") if file.suffix != ".pyc"]
    files = [*PAGES, *deploy, *(ROOT / "django_jobs").rglob("*.py")]
    found = [(name(file), link) for file in files for link in re.findall(r"https?://[^\s()<>\"'`]+", file.read_text())]
    assert {file for file, link in found if link.startswith(bases)} >= {"README.md", "SECURITY.md"}
    assert [(file, link) for file, link in found if project["name"] in link and not link.startswith(bases)] == []


def test_every_test_mark_is_a_promise_that_is_written_down() -> None:
    assert set(marks(ROOT / "tests")) <= set(tomllib.loads(SOURCE.read_text()))


def test_nothing_in_the_documents_is_unfinished() -> None:
    for page in PAGES:
        assert not re.search(r"\bTODO\b|\bFIXME\b|\bTBD\b", page.read_text()), name(page)


def test_every_function_that_operations_reads_with_is_in_the_reference() -> None:
    told = {call.partition("(")[0] for call in column("reference/operations.md", "function")}
    public = {
        name
        for name, value in vars(operating).items()
        if isfunction(value) and value.__module__ == operating.__name__ and not name.startswith("_")
    }
    assert public <= told <= set(operations.__all__)
