"""The German translation: whole, in step with its compiled form, and on the pages."""

from __future__ import annotations

import ast
import gettext
import re
from pathlib import Path

import pytest
from django.test import Client, override_settings

import django_jobs
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import fill_typical

FOLDER = Path(django_jobs.__file__).parent / "locale" / "de" / "LC_MESSAGES"
STRING = r'"(?:[^"\\]|\\.)*"'
ENTRY = re.compile(
    rf"^msgid ((?:{STRING}\s*)+)(?:msgid_plural ((?:{STRING}\s*)+))?((?:msgstr(?:\[\d\])? (?:{STRING}\s*)+)+)", re.M
)


def text(block: str) -> str:
    return "".join(ast.literal_eval(part) for part in re.findall(STRING, block))


def entries() -> list[tuple[str, str, list[str]]]:
    """(message, its plural or "", translations)."""
    source = (FOLDER / "django.po").read_text()
    found = []
    for match in ENTRY.finditer(source):
        forms = [text(form) for form in re.split(r"msgstr(?:\[\d\])? ", match.group(3))[1:]]
        found.append((text(match.group(1)), text(match.group(2) or ""), forms))
    return found[1:]


def placeholders(message: str) -> set[str]:
    return set(re.findall(r"%\(\w+\)[sd]", message))


def messages_of_the_code() -> set[tuple[str, str]]:
    """(message, its plural or "") of each call of gettext in the package, and of each tag in its templates."""
    found = set()
    for path in FOLDER.parents[2].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and (name in {"_", "gettext", "gettext_lazy"} or name.startswith("ngettext")):
                given = [ast.literal_eval(each) for each in node.args[: 1 + name.startswith("n")]]
                found.add((given[0], given[1] if len(given) > 1 else ""))
    for path in FOLDER.parents[2].rglob("*.html"):
        page = path.read_text()
        # Django looks up the text of a tag with its percent signs doubled.
        found |= {(message.replace("%", "%%"), "") for message in re.findall(r'{% translate "([^"]*)"', page)}
        for block in re.findall(r"{% blocktranslate[^%]*%}(.*?){% endblocktranslate %}", page):
            message, _, plural = re.sub(r"{{ (\w+) }}", r"%(\1)s", block).partition("{% plural %}")
            found.add((message, plural))
    return found


def test_the_translation_has_each_text_of_the_code_and_no_other() -> None:
    assert {(message, plural) for message, plural, _ in entries()} == messages_of_the_code()


def test_every_text_is_translated_with_its_placeholders() -> None:
    assert len(entries()) > 300
    for message, plural, forms in entries():
        assert len(forms) == (2 if plural else 1), message
        for form in forms:
            assert form, message
            assert placeholders(form) == placeholders(message), message


def test_the_compiled_translation_is_that_of_the_source() -> None:
    with (FOLDER / "django.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for message, plural, forms in entries():
        if plural:
            assert [compiled.ngettext(message, plural, n) for n in (1, 2)] == forms
        else:
            assert compiled.gettext(message) == forms[0]


@pytest.mark.django_db
@override_settings(LANGUAGE_CODE="de")
def test_the_pages_are_german(console_store: Store, root: Client) -> None:
    fill_typical(console_store)
    overview = root.get(BASE).text
    for words in ("Übersicht", "Handlungsbedarf", "10 Jobs in default sind gescheitert.", "Die letzte Stunde"):
        assert words in overview, words
    for words in ("Overview", "Needs attention", "Throughput", "Workers"):
        assert words not in overview, words
    assert re.search(r"seit <time[^>]*>\d+ ms</time>|seit <time[^>]*>[^<]* (s|min)", overview)
    assert not re.search(r"seit <time[^>]*>[^<]* her<", overview)
    dead = root.get(f"{BASE}jobs/dead/").text
    assert "Jetzt wiederholen" in dead
    assert "Retry now" not in dead
    kind = root.get(f"{BASE}types/shop.send_receipt/").text
    assert "Wartezeit: Hälfte, 95 %, längste" in kind
    assert "half, 95 %" not in kind
