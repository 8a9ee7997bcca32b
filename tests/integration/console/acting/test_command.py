"""`manage.py jobs`: what it prints, what it does, how it ends."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class
from django.db import InterfaceError, OperationalError, connection, transaction
from django.test import override_settings
from django.utils.translation import override

from django_jobs import archive
from django_jobs.browse.query.parsing import FIELDS
from django_jobs.core import registry
from django_jobs.core.values import State
from django_jobs.exceptions import StoreUnavailable
from django_jobs.models import AuditEntry
from django_jobs.samples.worker import ENDS, WorkerSamples
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.support.console_data import MARKUP, Filler, fill_hostile, fill_typical, worker_info

pytestmark = pytest.mark.django_db


def jobs(*words: str) -> str:
    """What the command prints."""
    out = StringIO()
    call_command("jobs", *words, stdout=out)
    return out.getvalue()


def as_json(*words: str) -> Any:
    return json.loads(jobs(*words, "--json"))


def state_of(store: Store, id: str) -> State | None:
    info = store.get("default", id)
    return info.state if info else None


# -- looking -------------------------------------------------------------------


@pytest.mark.accepts("G78")
def test_stats_has_the_shape_that_is_documented(console_store: Store) -> None:
    fill_typical(console_store)
    stats = as_json("stats")
    assert set(stats) == {"states", "queues", "totals", "workers"}
    assert set(stats["states"]) == set(State)
    assert stats["states"]["dead"] == 10
    assert set(stats["queues"]["default"]) == {*State, "latency", "paused", "unarchived"}
    assert stats["queues"]["default"]["paused"] is False
    assert set(stats["totals"]) == {"enqueued", "succeeded", "failed", "retried", "dead"}
    assert stats["workers"] == 1
    text = jobs("stats")
    assert "default" in text
    assert "Workers: 1." in text


def test_list_filters_and_says_how_far_it_looked(console_store: Store) -> None:
    fill_typical(console_store)
    assert len(as_json("list", "dead")) == 10
    assert len(as_json("list", "dead", "--name", "shop.charge_card")) == 4
    assert len(as_json("list", "dead", "--search", "10.0.0.3")) == 1
    assert len(as_json("list", "dead", "--limit", "2")) == 2
    assert len(as_json("list", "dead", "--queue", "default")) == 10
    assert "Shown: 10. Checked: 10 of 10 dead jobs." in jobs("list", "dead")
    assert "4111111111111111" not in jobs("list", "dead", "--json")
    with pytest.raises(CommandError, match="no queue 'nothing'"):
        jobs("list", "dead", "--queue", "nothing")


def test_the_help_names_each_field_of_a_query(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call_command("jobs", "list", "--help")
    said = capsys.readouterr().out
    assert [field for field in FIELDS if f"{field}:" not in said] == []


def test_show_prints_everything_about_a_job(filler: Filler) -> None:
    id = filler.make(State.DEAD, "no answer", "builtins.TimeoutError", call=[[7], {"email": "ada@example.com"}])
    shown = as_json("show", id)
    assert (shown["id"], shown["state"], shown["args"]) == (id, "dead", [7])
    assert (shown["error"], shown["log"][0]["error_type"]) == ("TimeoutError: no answer", "builtins.TimeoutError")
    text = jobs("show", id)
    assert "smtplib.py" in text
    assert "\nattempt 1: failed" in text
    assert "args:          [7]" in text
    with pytest.raises(CommandError, match="may have left the history"):
        jobs("show", "nothing")


def test_show_says_which_attempts_no_longer_count(console_store: Store, filler: Filler) -> None:
    id = filler.make(State.DEAD, "no answer", "builtins.TimeoutError")
    console_store.revive("default", [id])
    assert [entry["counted"] for entry in as_json("show", id)["log"]] == [False]
    assert "\nattempt 1 (not counted): failed" in jobs("show", id)
    console_store.kill("default", [id], "by hand")
    assert "\nkilled at " in jobs("show", id)


def test_a_job_that_no_worker_knows_says_so(console_store: Store, filler: Filler) -> None:
    id = filler.add("shop.renamed")
    console_store.park(filler.run(id), "digest")
    assert "no worker that claimed it knows a job of that name" in jobs("show", id)


def test_failed_jobs_are_counted_by_tag(console_store: Store, filler: Filler) -> None:
    assert jobs("tags", "dead") == "No dead job has a tag that counts.\n"
    for tags in ("customer:42 vip", "customer:42", "c:7"):
        filler.make(State.DEAD, tags=tags)
    filler.make(State.RETRY, tags="later")
    assert [(each["tag"], each["jobs"]) for each in as_json("tags", "dead")["tags"]] == [
        ("customer:42", 2), ("c:7", 1), ("vip", 1),
    ]  # fmt: skip
    assert re.search(r"customer:42 +2 +20", jobs("tags", "dead", "--queue", "default"))
    assert jobs("tags", "retry").splitlines()[1].startswith("later")
    assert "Not shown: 2 less frequent tags." in jobs("tags", "dead", "--limit", "1")
    with pytest.raises(CommandError, match="There is no queue 'nowhere'"):
        jobs("tags", "dead", "--queue", "nowhere")
    with pytest.raises(CommandError, match="use 1 to 10,000"):
        jobs("tags", "dead", "--limit", "0")


def test_nothing_that_a_terminal_obeys_is_printed(console_store: Store, filler: Filler) -> None:
    filler.make(State.DEAD, "\x1b[2J\x1b]0;owned\x07", "Error", name="red\x1b[31m", id="a\x1bb")
    for words in (["list", "dead"], ["show", "a\x1bb"]):
        assert "\x1b" not in jobs(*words)
    fill_hostile(console_store)
    for state in ("dead", "retry", "running", "succeeded", "scheduled", "cancelled"):
        assert MARKUP[:30] in jobs("list", state)


def test_the_age_of_a_check_in_is_by_the_clock_of_the_store(console_store: Store, clock: Clock) -> None:
    console_store.publish_worker("web-1:4711", worker_info(), 60_000)
    clock.advance(42_000)
    assert "42 s ago" in jobs("workers")


def test_workers_are_listed(console_store: Store) -> None:
    assert "No worker is running." in jobs("workers")
    console_store.publish_worker("web-1:4711", worker_info(), 60_000)
    assert as_json("workers")[0]["host"] == "web-1"
    assert "2×8" in jobs("workers")
    assert as_json("workers")[0]["totals"] is None
    assert jobs("workers").count("not known") == 2, "a worker of an older version"
    totals = dict.fromkeys(ENDS, 0) | {"succeeded": 1234, "failed": 5}
    more = {"at": 1_760_000_000_000, "totals": totals, "samples": WorkerSamples(1_760_000_000_000).as_json()}
    console_store.publish_worker("web-1:4711", worker_info(**more), 60_000)
    assert as_json("workers")[0]["totals"] == totals
    assert "samples" not in as_json("workers")[0]
    assert re.search(r"2×8 +1234 +5 ", jobs("workers"))


# -- acting --------------------------------------------------------------------


@pytest.mark.accepts("G59")
def test_retry_by_id_and_all(console_store: Store, filler: Filler) -> None:
    ids = [filler.make(State.DEAD, name="shop.send_receipt" if i else "shop.charge_card") for i in range(5)]
    assert as_json("retry", ids[0]) == {
        "moved": [ids[0]],
        "asked": [],
        "held": [],
        "taken": {},
        "left": [],
        "missing": [],
    }
    assert as_json("retry", "--all", "--name", "shop.charge_card")["moved"] == 0
    assert as_json("retry", "--all")["moved"] == 4
    assert console_store.stats(["default"])[0].counts["queued"] == 5


@pytest.mark.accepts("G70")
def test_delete_by_id_and_all_of_a_state(console_store: Store, filler: Filler) -> None:
    ids = [filler.make(State.DEAD) for _ in range(3)]
    jobs("delete", ids[0])
    assert state_of(console_store, ids[0]) is None
    assert "delete: 2 of 2 dead jobs." in jobs("delete", "--all", "dead")
    with pytest.raises(CommandError, match=r"'running' \(choose from '?blocked'?, '?cancelled'?, "):
        jobs("delete", "--all", "running")


def test_retry_and_delete_all_take_the_filters_of_lists(console_store: Store, filler: Filler, clock: Any) -> None:
    early = [filler.make(State.DEAD) for _ in range(2)]
    clock.advance(60_000)
    late = [filler.make(State.DEAD) for _ in range(3)]
    at = datetime.fromtimestamp(clock.now / 1000, UTC)
    begin, end = at.isoformat(), (at + timedelta(seconds=1)).isoformat()
    assert as_json("retry", "--all", "--from", end)["moved"] == 0
    assert as_json("retry", "--all", "--from", begin, "--search", late[0])["moved"] == 1
    assert "retry: 2 of 2 dead jobs." in jobs("retry", "--all", "--from", begin, "--until", end)
    assert {state_of(console_store, id) for id in late} == {State.QUEUED}
    assert {state_of(console_store, id) for id in early} == {State.DEAD}
    assert "delete: 2 of 2 dead jobs." in jobs("delete", "--all", "dead", "--until", begin)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("retry", "--all", "--from", "noon"), "--from 'noon' is not a time"),
        (("retry", "--all", "--from", "2026-01-02", "--until", "2026-01-01"), "--from must be before --until"),
        (("retry", "--all", "--queue", "nowhere"), "nowhere"),
        (("delete", "--all", "queued", "--until", "2026-01-01"), "queued are in no order of time"),
        (
            ("retry", "x", "--name", "shop.charge_card", "--from", "2026-01-01"),
            "--name and --from chooses? .* without ids",
        ),
        (("delete", "x", "--search", "y"), "--search chooses .* without ids"),
    ],
)
def test_filters_that_cannot_be_used_are_named_and_nothing_is_done(
    console_store: Store, filler: Filler, words: tuple[str, ...], why: str
) -> None:
    filler.make(State.DEAD)
    filler.add()
    with pytest.raises(CommandError, match=why):
        jobs(*words)
    counts = console_store.stats(["default"])[0].counts
    assert (counts["dead"], counts["queued"]) == (1, 1)


def test_cancel_asks_running_jobs_to_stop(console_store: Store, filler: Filler) -> None:
    waiting, running = filler.make(State.SCHEDULED), filler.make(State.RUNNING)
    assert as_json("cancel", waiting, running)["asked"] == [running]
    assert state_of(console_store, waiting) is State.CANCELLED


def test_what_was_not_done_is_named_and_ends_with_1(filler: Filler) -> None:
    dead, queued = filler.make(State.DEAD), filler.add()
    with pytest.raises(SystemExit) as ended:
        jobs("retry", dead, queued, "nothing")
    assert ended.value.code == 1
    with pytest.raises(CommandError, match="There is no job 'nothing'"):
        jobs("retry", "nothing")
    with pytest.raises(CommandError, match="not both"):
        jobs("retry")
    with pytest.raises(CommandError, match="not both"):
        jobs("retry", "x", "--all")


@pytest.mark.accepts("G83")
def test_a_queue_and_a_job_type_are_paused_and_resumed(console_store: Store, filler: Filler) -> None:
    jobs("pause", "default", "--for", "60", "--reason", "deploy")
    pause = console_store.stats(["default"])[0].paused
    assert pause is not None
    assert (pause.reason, pause.until) == ("deploy", console_store.now() + 60_000)
    assert re.search(r"default is paused until 20.*: deploy\n", jobs("stats"))
    assert as_json("stats")["queues"]["default"]["paused"] is True
    jobs("resume", "default")
    jobs("pause", "--job", "shop.send_receipt", "--reason", "wrong sums")
    assert "shop.send_receipt in default is paused: wrong sums\n" in jobs("stats")
    assert "shop.send_receipt" in console_store.stats(["default"])[0].paused_types
    jobs("resume", "--job", "shop.send_receipt")
    assert not console_store.stats(["default"])[0].paused_types
    for words, error in (
        (["pause"], "Name a queue"),
        (["pause", "nothing"], "no queue"),
        (["pause", "--job", "shop.send_reciept"], "Did you mean 'shop.send_receipt'"),
        (["pause", "default", "--for", "-1"], "above 0"),
    ):
        with pytest.raises(CommandError, match=error):
            jobs(*words)


def test_enqueue_checks_the_name_and_the_arguments(console_store: Store) -> None:
    made = as_json("enqueue", "shop.send_receipt", "--args", "[7]", "--id", "receipt-7", "--priority", "5")
    assert made == {"id": "receipt-7", "name": "shop.send_receipt", "queue": "default", "added": True}
    jobs("enqueue", "shop.send_receipt", "--args", '{"order_id": 8}')
    assert console_store.stats(["default"])[0].counts["queued"] == 2
    for words, error in (
        (["enqueue", "shop.nothing"], "No job is named"),
        (["enqueue", "shop.send_receipt", "--args", "["], "not JSON"),
        (
            ["enqueue", "shop.send_receipt", "--args", "[" * 100_000],
            "which is not JSON: .{9,99}$",
        ),
        (["enqueue", "shop.send_receipt", "--args", "7"], "JSON list"),
        (["enqueue", "shop.send_receipt"], "cannot be called"),
    ):
        with pytest.raises(CommandError, match=error):
            jobs(*words)


# -- doctor --------------------------------------------------------------------


class Patient:
    """A store that describes itself as told."""

    def __init__(self, store: Store, **described: str) -> None:
        self.store, self.described = store, described

    def describe(self) -> dict[str, str]:
        return self.described

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


HEALTHY = {
    "server": "redis",
    "address": "redis://db:6379/0",
    "version": "7.4.1",
    "role": "master",
    "eviction_policy": "noeviction",
    "maxmemory": "0",
    "used_memory": "1",
    "append_only_file": "on",
    "last_save_failed": "no",
}


def doctor(store: Store, **described: str) -> tuple[int, dict[tuple[str, str], str]]:
    """Exit code, and (level, subject) → what it says."""
    use_store(Patient(store, **{**HEALTHY, **described}))  # type: ignore[arg-type]
    out, code = StringIO(), 0
    try:
        call_command("jobs", "doctor", "--json", stdout=out)
    except SystemExit as ended:
        code = int(str(ended.code))
    return code, {(each["level"], each["subject"]): each["says"] for each in json.loads(out.getvalue())["findings"]}


@pytest.fixture
def live(make_redis_store: Any) -> Iterator[Store]:
    """A store with the machine's own clock and a worker, in a project without jobs."""
    others = registry.all_definitions()
    for definition in others:
        registry.unregister(definition.name)
    store: Store = make_redis_store(clock=None)
    store.publish_worker("web-1:4711", worker_info(), 60_000)
    yield store
    for definition in others:
        registry.register(definition)


@pytest.mark.parametrize(
    ("described", "level", "subject"),
    [
        ({}, "ok", "eviction"),
        ({"eviction_policy": "allkeys-lru"}, "error", "eviction"),
        ({"append_only_file": "off"}, "warning", "persistence"),
        ({"last_save_failed": "yes"}, "error", "persistence"),
        ({"version": "6.0.16"}, "error", "version"),
        ({"role": "slave"}, "error", "role"),
        ({"maxmemory": "100", "used_memory": "95"}, "warning", "memory"),
    ],
)
@pytest.mark.accepts("K26")
def test_doctor_finds_what_can_lose_jobs(described: dict[str, str], level: str, subject: str, live: Store) -> None:
    code, found = doctor(live, **described)
    assert (level, subject) in found
    assert code == (1 if level == "error" else 0), found


@pytest.mark.accepts("K26")
def test_doctor_finds_names_nobody_knows_and_queues_nobody_takes(live: Store) -> None:
    filler = Filler(live)
    filler.add(name="shop.renamed", queue="mail")
    code, found = doctor(live)
    assert code == 1
    assert "shop.renamed" in found["warning", "names"]
    assert "1 job of mail is waiting, and no worker serves this queue." in found["error", "workers"]


def test_doctor_finds_a_wrong_clock(make_redis_store: Any) -> None:
    code, found = doctor(make_redis_store())
    assert code == 1
    assert "NTP" in found["error", "clock"]


def test_doctor_repairs_on_request(live: Store) -> None:
    use_store(live)
    assert "Errors: 0" in jobs("doctor", "--repair")


@override_settings(DJANGO_JOBS={"STORE": "memory", "LEESE": 3})
def test_doctor_repeats_what_the_checks_say(live: Store) -> None:
    code, found = doctor(live)
    assert code == 1
    assert any("LEESE" in says for says in found.values())


def test_a_store_out_of_reach_is_a_clear_error(console_store: Store) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise StoreUnavailable("Redis at redis://db:6379/0 refuses connections.")

        def close(self) -> None:
            """Nothing was open."""

    use_store(Broken())  # type: ignore[arg-type]
    for words in (["stats"], ["list", "dead"], ["show", "x"], ["retry", "--all"], ["workers"]):
        with pytest.raises(CommandError, match="refuses connections"):
            jobs(*words)
    with pytest.raises(SystemExit) as ended:
        jobs("doctor")
    assert ended.value.code == 1


def test_a_missing_table_is_a_clear_error_that_names_migrate(console_store: Store) -> None:
    for table, words in (("auditentry", ["history"]), ("apitoken", ["token", "list"])):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE django_jobs_{table}")
            with pytest.raises(CommandError, match=rf"{table}.*Run `manage.py migrate`\.$"):
                jobs(*words)
            transaction.set_rollback(True)


def test_djangos_own_options_stand_before_and_after_the_subcommand() -> None:
    parser = load_command_class("django_jobs", "jobs").create_parser("manage.py", "jobs")
    for words in (
        ["--settings", "shop.production", "--traceback", "-v", "0", "stats"],
        ["stats", "--settings", "shop.production", "--traceback", "-v", "0"],
    ):
        options = parser.parse_args(words)
        assert (options.settings, options.traceback, options.verbosity) == ("shop.production", True, 0)
    assert (parser.parse_args(["stats"]).settings, parser.parse_args(["stats"]).verbosity) == (None, 1)


# -- what could be misunderstood -------------------------------------------------


def test_enqueue_says_if_nothing_was_added_and_refuses_a_priority_that_does_not_exist(console_store: Store) -> None:
    name, call = "shop.send_receipt", "[7]"
    first = as_json("enqueue", name, "--args", call, "--id", "once")
    assert first["added"] is True
    assert as_json("enqueue", name, "--args", call, "--id", "once")["added"] is False
    assert "Job once already exists" in jobs("enqueue", name, "--args", call, "--id", "once")
    for priority in ("9999", "-101"):
        with pytest.raises(CommandError, match="--priority is"):
            jobs("enqueue", name, "--args", call, f"--priority={priority}")


def test_a_limit_of_no_jobs_is_an_error(console_store: Store) -> None:
    with pytest.raises(CommandError, match="--limit is 0"):
        jobs("list", "dead", "--limit", "0")


@pytest.mark.django_db
def test_a_job_in_the_archive_is_found_and_stays_as_it_is(console_store: Store, filler: Filler, settings: Any) -> None:
    id = filler.make(State.CANCELLED)
    (ended,) = console_store.page("default", State.CANCELLED)
    archive.write([ended])
    console_store.delete("default", [id])
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "ARCHIVE": {"DAYS": 180}}
    use_store(console_store)
    assert "cancelled" in jobs("why", id)
    for words in (["retry", id, "--yes"], ["cancel", id], ["delete", id]):
        with pytest.raises(SystemExit):
            jobs(*words)
    with pytest.raises(CommandError, match="cannot be edited: it is cancelled, and in the archive"):
        jobs("edit", id, "--args", "[8]")
    assert not AuditEntry.objects.exists()


def test_a_limit_that_would_be_cut_is_refused(console_store: Store) -> None:
    with pytest.raises(CommandError, match="--limit is 10001: use 1 to 10,000"):
        jobs("list", "dead", "--limit", "10001")


def test_show_looks_into_the_archive(console_store: Store, settings: Any) -> None:
    fill_typical(console_store)
    (dead, *_) = console_store.page("default", State.DEAD)
    archive.write([dead])
    console_store.delete("default", [dead.id])
    with pytest.raises(CommandError):
        jobs("show", dead.id)
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "ARCHIVE": {"DAYS": 180}}
    use_store(console_store)
    shown = as_json("show", dead.id)
    assert (shown["id"], shown["state"], shown["archived"]) == (dead.id, "dead", True)
    with pytest.raises(CommandError):
        jobs("show", dead.id, "--queue", "other")


def test_deleting_all_jobs_that_have_not_run_asks_first(console_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_typical(console_store)
    waiting = console_store.stats(["default"])[0].counts["queued"]
    assert waiting

    def answer(text: str) -> None:
        def ask(question: str) -> str:
            if not text:
                raise EOFError
            return text

        monkeypatch.setattr("builtins.input", ask)

    for text in ("", "n"):
        answer(text)
        with pytest.raises(CommandError, match=r"--yes|Nothing was changed"):
            jobs("delete", "--all", "queued")
    assert console_store.stats(["default"])[0].counts["queued"] == waiting
    answer("y")
    jobs("delete", "--all", "queued")
    assert console_store.stats(["default"])[0].counts["queued"] == 0
    answer("")
    jobs("delete", "--all", "scheduled", "--yes")


def test_a_job_that_comes_while_the_command_asks_is_left_alone(
    console_store: Store, filler: Filler, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, later = filler.make(State.DEAD), list[str]()

    def answer(question: str) -> str:
        assert "1 dead job" in question
        clock.advance(1_000)
        later.append(filler.make(State.DEAD))
        return "y"

    monkeypatch.setattr("builtins.input", answer)
    jobs("delete", "--query", "state:dead")
    assert state_of(console_store, shown) is None
    assert state_of(console_store, later[0]) is State.DEAD


def test_the_question_is_not_on_the_output_that_programs_read(
    console_store: Store, filler: Filler, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    filler.make(State.DEAD)
    monkeypatch.setattr("sys.stdin", StringIO("y\n"))
    call_command("jobs", "retry", "--query", "state:dead", "--json")
    out, err = capsys.readouterr()
    assert json.loads(out)["moved"] == 1
    assert "Retry all that match?" in err


def test_a_question_is_not_asked_where_the_input_is_closed(
    console_store: Store, filler: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler.make(State.DEAD)
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(CommandError, match="--yes"):
        call_command("jobs", "retry", "--query", "state:dead")


def test_an_output_that_is_not_utf8_has_escapes_for_what_it_cannot_hold(console_store: Store) -> None:
    jobs("pause", "default", "--reason", "café …")
    for options, shown in (((), "caf\xe9 \\u2026"), (("--json",), "caf\\u00e9 \\u2026")):
        with BytesIO() as raw, TextIOWrapper(raw, encoding="latin-1") as out:
            call_command("jobs", "paused", *options, stdout=out)
            assert shown in raw.getvalue().decode("latin-1")


def test_it_is_no_error_that_nobody_reads_the_output_to_its_end(console_store: Store) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as out:
        call_command("jobs", "pause", "default", stdout=out)
    assert console_store.stats(["default"])[0].paused


@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
@pytest.mark.parametrize("words", [("history",), ("outbox",), ("token", "list"), ("schedules",), ("paused",)])
def test_a_database_that_is_away_is_an_error_in_one_line(
    console_store: Store, words: tuple[str, ...], error: type[Exception]
) -> None:
    def refuse(*_: Any) -> None:
        raise error("nobody listens?\n")

    with connection.execute_wrapper(refuse), pytest.raises(CommandError) as raised:
        jobs(*words)
    assert str(raised.value) == "The database cannot be used: nobody listens?."


@pytest.mark.parametrize("words", [("pause", "default", "--reason"), ("show",), ("list", "dead", "--query")])
def test_an_argument_that_is_not_utf8_is_refused(console_store: Store, words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match=r"'caf\\udce9' is not UTF-8"):
        jobs(*words, os.fsdecode(b"caf\xe9"))


def test_the_history_says_if_there_is_more_of_it(console_store: Store) -> None:
    jobs("pause", "default")
    jobs("resume", "default")
    assert "There are more." in jobs("history", "--limit", "1")
    assert "There are more." not in jobs("history", "--limit", "2")
    assert len(as_json("history", "--limit", "1")) == 1


def test_no_queue_is_not_all_queues() -> None:
    with pytest.raises(CommandError, match="name at least one queue"):
        call_command("runworkers", "--queues", "")


@pytest.mark.parametrize("use_tz", [True, False])
def test_times_from_the_database_have_their_offset(console_store: Store, filler: Filler, use_tz: bool) -> None:
    with override_settings(USE_TZ=use_tz, TIME_ZONE="America/New_York"):
        jobs("delete", filler.make(State.DEAD))
        token = as_json("token", "create", "shop", "--scope", "read", "--days", "1")
        (entry,) = as_json("history", "--user", "", "--limit", "1")
        now = datetime.now(UTC)
        for time, expected in ((entry["at"], now), (token["expires_at"], now + timedelta(days=1))):
            assert abs(datetime.fromisoformat(time) - expected) < timedelta(minutes=5)
        assert len(re.findall(r"\d\d:\d\d:\d\d\+00:00", jobs("history") + jobs("token", "list"))) == 3


def test_a_wrong_state_is_answered_with_the_states() -> None:
    with pytest.raises(CommandError, match="'dead', 'expired', 'succeeded'"):
        jobs("archived", "--state", "asleep")


def test_what_is_not_known_is_an_empty_cell(console_store: Store, filler: Filler) -> None:
    filler.make(State.DEAD)
    assert as_json("times")[0]["since"] is None
    assert "None" not in jobs("times")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("cancel",), "Name the ids of jobs, or use --query; not both"),
        (("cancel", "x", "--name", "shop.send_receipt"), "--name chooses .* use it with --query, without ids"),
        (("retry",), "or use --all or --query; not both"),
        (("token", "rotate", "shop", "--days", "30", "--scope", "read"), "`token rotate` has no use for --scope and"),
        (("token", "revoke", "shop", "--overlap", "0"), "`token revoke` has no use for --overlap"),
        (("token", "list", "shop"), "`token list` has no use for NAME"),
        (("errors", "list", "0123"), "`errors list` has no use for ID"),
        (("errors", "resolve", "0123", "--queue", "default"), "`errors resolve` has no use for --queue"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused_and_what_is_named_exists(
    console_store: Store, words: tuple[str, ...], why: str
) -> None:
    with pytest.raises(CommandError, match=why):
        jobs(*words)


def test_a_token_is_refused_in_english_and_its_revocation_is_one_act(console_store: Store) -> None:
    jobs("token", "create", "shop", "--scope", "read")
    with override("de"):
        for words in (("shop",), ("till", "--per-minute", "0")):
            with pytest.raises(CommandError, match=r"There is a valid token of that name|Ensure this value is greater"):
                jobs("token", "create", *words, "--scope", "read")
    for _ in range(2):
        assert jobs("token", "revoke", "shop") == "shop: revoked.\n"
    assert [entry.verb for entry in AuditEntry.objects.order_by("id")] == ["create", "revoke"]
