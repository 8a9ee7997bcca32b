"""System checks: finds errors in DJANGO_JOBS and in the jobs before anything runs.  Never uses the network.

The ids are listed in docs/reference/checks.md; a released id keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.urls import get_resolver
from django.utils.module_loading import import_string

from django_jobs.conf import HostSettings, get_settings, host_settings, raw_setting
from django_jobs.conf.authorizer import authorizer, console_warnings
from django_jobs.conf.outbox import check_outbox_table, outbox_warnings
from django_jobs.conf.queues import covers, queue_key
from django_jobs.conf.store_address import SCHEMES, check_deployment, check_store, embedded_place, refuse_old_file
from django_jobs.conf.values import KEYS, PARTS, QUEUE_KEYS, SECRET, Judge
from django_jobs.core import discovery, registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.options.declared import DEFAULTABLE, check_options
from django_jobs.exceptions import InvalidArguments, InvalidCron, InvalidJob, StoreMisconfigured, UnknownJob
from django_jobs.formatting import sentence
from django_jobs.middleware import build, try_out
from django_jobs.schedules.cron import parse
from django_jobs.schedules.interval import timing
from django_jobs.schedules.sources import schedule_problems

TAG = "django_jobs"


def register_checks() -> None:
    """Register the checks with Django; the app calls this once."""
    checks.register(check_settings, TAG)
    checks.register(check_private_server, TAG)
    checks.register(check_jobs, TAG)
    checks.register(check_modules, TAG)
    checks.register(check_deployment, TAG, deploy=True)
    checks.register(check_outbox_table, checks.Tags.database)


def check_settings(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """E001–E008, E012, E013, E020, W001 and W007–W011: Does DJANGO_JOBS follow the reference?"""
    raw = raw_setting()
    if not isinstance(raw, Mapping):
        # Only the type is shown: a text is most likely an address with a password.
        message = f"DJANGO_JOBS is of type {type(raw).__name__}, not a dict."
        return [Error(message, hint="Write DJANGO_JOBS = {'STORE': 'redis://localhost:6379/0'}.", id=_id("E001"))]
    found = list(_keys("DJANGO_JOBS", raw, KEYS))
    for name, keys in PARTS.items():
        if isinstance(raw.get(name), Mapping):
            found += _keys(f"DJANGO_JOBS[{name!r}]", raw[name], keys)
    found += _queues(raw.get("QUEUES"))
    found += _callables(raw)
    found += _job_defaults(raw.get("JOB_DEFAULTS"))
    found += _routes(raw)
    found += _authorizer(raw, "API", "a request to a Principal or None")
    found += _authorizer(raw, "CONSOLE", "a request and a permission to True or False")
    around = host_settings()
    database = raw.get("DATABASE", "default")
    if isinstance(database, str) and database not in around.databases:
        message = f"DJANGO_JOBS['DATABASE'] is {database!r}, which is not in DATABASES."
        found.append(Error(message, f"Use one of {', '.join(sorted(around.databases))}.", id=_id("E008")))
    return [*found, *console_warnings(raw), *outbox_warnings(raw, around), *_store(raw.get("STORE"), around)]


def _store(store: Any, around: HostSettings) -> list[CheckMessage]:
    found = check_store(store, around)
    if any(message.is_serious() for message in found):
        return found
    # Each process of a site imports this module; the driver is slow to import.
    if isinstance(store, str) and store.partition(":")[0] in SCHEMES:
        from django_jobs.stores.redis.connection.options import BadOption, read_options

        try:
            read_options(store)
        except BadOption as error:
            return [Error(f"DJANGO_JOBS['STORE'] {error.problem}.", hint=error.remedy, id=_id("E007"))]
    return found


def check_private_server(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """E018: Can the server of an embedded store be started?  Runs programs, so no other check calls it."""
    if any(message.is_serious() for message in check_settings()):
        return []  # the settings may be unreadable as a whole
    settings = get_settings()
    kind = settings.store.partition(":")[0]
    if kind in ("embedded", "memory"):
        from django_jobs.stores.embedded.program import find_program

        try:
            find_program()
            if kind == "embedded":
                refuse_old_file(embedded_place(settings.store, settings.base_dir)[0])
        except StoreMisconfigured as error:
            return [Error(str(error), id=_id("E018"))]
    return []


def check_jobs(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """E009–E011, E014, E016, E019 and W003: does each job fit the settings?"""
    if any(message.is_serious() for message in check_settings()):
        return []  # the settings come first; without them the jobs cannot be checked
    found: list[CheckMessage] = []
    settings = get_settings()
    for definition in registry.all_definitions():
        try:
            definition.resolved()
        except InvalidJob as error:
            hint = "The options of @job and those of JOB_DEFAULTS contradict each other: change one of them."
            found.append(Error(str(error), hint=hint, obj=definition, id=_id("E016")))
            continue
        if definition.queue not in settings.queues:
            message = f"Its queue {definition.queue!r} is not in DJANGO_JOBS['QUEUES']."
            hint = _nearest(definition.queue, settings.queues.written)
            found.append(Error(message, hint=hint, obj=definition, id=_id("E009")))
        found += _cron(f"The job {definition.name}", definition.cron, definition) or _call_by_cron(definition)
        found += _limits(definition)
        found += _end_calls(definition)
    for name, schedule in settings.schedules.items():
        found += _schedule(name, schedule)
    return found


def check_modules(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """E017 and W004: Do workers find all jobs and tasks?

    Imports the URL configuration, because views enqueue; it knows only the jobs of modules that are imported then."""
    found: list[CheckMessage] = [
        Error(
            f"DJANGO_JOBS['MODULES'] names {name!r}. No installed app has that module, and it cannot be imported.",
            hint="Name a module of apps ('jobs', 'background.mail'), or write the full path ('project.background').",
            id=_id("E017"),
        )
        for name in discovery.missing()
    ]
    with suppress(Exception):  # if it is wrong, Django's own check reports it
        _ = get_resolver().url_patterns
    for definition in registry.all_definitions():
        if definition.is_late:
            message = f"Workers will not find this job: {definition.origin} is not imported when the project starts."
            found.append(
                Warning(message, hint=discovery.remedy(definition.func.__module__), obj=definition, id=_id("W004"))
            )
    return found


# -- parts of the settings ---------------------------------------------------------


def _keys(place: str, given: Mapping[Any, Any], known: Mapping[str, Judge]) -> Iterator[CheckMessage]:
    for key, value in given.items():
        if key not in known:
            yield Error(f"{place} has an unknown key {key!r}.", hint=_nearest(str(key), known), id=_id("E002"))
        elif remedy := known[key](value):
            shown = f"of type {type(value).__name__}" if key in SECRET else repr(value)
            yield Error(f"{place}[{key!r}] is {shown}.", hint=remedy, id=_id("E003"))


def _queues(queues: Any) -> Iterator[CheckMessage]:
    if not isinstance(queues, Mapping):
        return
    for name, options in queues.items():
        if remedy := queue_key(name):
            yield Error(f"DJANGO_JOBS['QUEUES'] has a queue named {name!r}.", hint=remedy, id=_id("E004"))
        place = f"DJANGO_JOBS['QUEUES'][{name!r}]"
        if isinstance(options, Mapping):
            yield from _keys(place, options, QUEUE_KEYS)
        elif options is not None:
            yield Error(f"{place} is {options!r}.", hint="Use a dict of options; {} for none.", id=_id("E003"))


def _callables(raw: Mapping[str, Any]) -> Iterator[CheckMessage]:
    layer = "get_next and returns a function"
    for key, taken in (("MIDDLEWARE", layer), ("ENQUEUE_MIDDLEWARE", layer), ("NOTIFY", "a notice")):
        paths = raw.get(key, ())
        for path in paths if isinstance(paths, list | tuple) else ():
            if not isinstance(path, str):
                continue
            try:
                if key == "MIDDLEWARE":
                    build([path])
                elif not callable(named := import_string(path)):
                    raise ImproperlyConfigured(f"it is not callable: it must take {taken.partition(' and')[0]}")
                elif key != "NOTIFY":
                    try_out(path, named)
            except Exception as error:  # the import can raise anything
                hint = f"Use the dotted path of a function that takes {taken}."
                yield Error(f"DJANGO_JOBS[{key!r}]: {path!r} cannot be used: {sentence(error)}", hint, id=_id("E005"))


def _job_defaults(defaults: Any) -> Iterator[CheckMessage]:
    if not isinstance(defaults, Mapping):
        return
    try:
        check_options(defaults, "DJANGO_JOBS['JOB_DEFAULTS']", DEFAULTABLE)
    except InvalidJob as error:
        yield Error(str(error), hint="Use options of @job that can apply to every job.", id=_id("E006"))


def _routes(raw: Mapping[str, Any]) -> Iterator[CheckMessage]:
    routes, queues = raw.get("ROUTES"), raw.get("QUEUES") or {"default": {}}
    for pattern, queue in routes.items() if isinstance(routes, Mapping) and isinstance(queues, Mapping) else ():
        if isinstance(queue, str) and not any(covers(key, queue) for key in queues):
            message = f"DJANGO_JOBS['ROUTES'][{pattern!r}] is {queue!r}, which is not in QUEUES."
            yield Error(message, hint=_nearest(queue, queues), id=_id("E020"))


def _authorizer(raw: Mapping[str, Any], part: str, task: str) -> Iterator[CheckMessage]:
    path = keys.get("AUTHORIZER") if isinstance(keys := raw.get(part), Mapping) else None
    if not isinstance(path, str) or not path:
        return
    try:
        authorizer(part, path)
    except Exception as error:
        # The import can raise anything.  Without this check, every request would answer 500.
        hint = f"{path!r} must be a function or a class with a method authorize, from {task}."
        why = f"{type(error).__name__}: {sentence(error)}"
        yield Error(f"DJANGO_JOBS[{part!r}]['AUTHORIZER'] cannot be used: {why}", hint, id=_id("E013"))


# -- jobs and schedules --------------------------------------------------------------


def _cron(owner: str, cron: str | None, obj: Any = None) -> list[CheckMessage]:
    try:
        if cron is not None:
            parse(cron)
    except InvalidCron as error:
        return [Error(f"{owner} has an impossible schedule: {error}", obj=obj, id=_id("E010"))]
    return []


def _call_by_cron(definition: JobDefinition) -> list[CheckMessage]:
    """A schedule on the job itself cannot pass arguments."""
    try:
        if definition.cron is not None:
            definition.check_call((), {})
    except InvalidArguments as error:
        hint = "Give its parameters defaults, or write an entry of DJANGO_JOBS['SCHEDULES'] with args or kwargs."
        return [
            Error(
                f"It has cron=…, and a schedule passes no arguments. {error}", hint=hint, obj=definition, id=_id("E014")
            )
        ]
    return []


def _limits(definition: JobDefinition) -> Iterator[CheckMessage]:
    if definition.concurrency_key is not None and not definition.max_concurrency:
        message = "Its concurrency_key limits nothing without max_concurrency."
        hint = "Add max_concurrency=…: how many jobs with the same key may run at the same time."
        yield Warning(message, hint=hint, obj=definition, id=_id("W003"))


def _end_calls(definition: JobDefinition) -> Iterator[CheckMessage]:
    try:
        registry.check_end_calls(definition, definition.stored_controls)
    except (UnknownJob, InvalidArguments, InvalidJob) as error:
        hint = "on_end and on_dead name a registered job that takes one argument."
        yield Error(f"{definition.name} cannot be enqueued: {error}", hint=hint, obj=definition, id=_id("E019"))


def _schedule(name: str, schedule: Any) -> Iterator[CheckMessage]:
    place = f"DJANGO_JOBS['SCHEDULES'][{name!r}]"
    is_named = isinstance(schedule, Mapping) and isinstance(schedule.get("job"), str)
    if not is_named or not {"cron", "every", "at"} & set(schedule):
        hint = "It needs at least 'job', and 'cron', 'every' or 'at'."
        yield Error(f"{place} is {schedule!r}.", hint=hint, id=_id("E011"))
        return
    cron = str(timing(schedule.get("cron"), schedule.get("every"), schedule.get("at")))
    try:
        registry.get(schedule["job"])
    except LookupError as error:
        yield Error(f"{place}: {error}", id=_id("E011"))
        yield from _cron(place, cron)
        return
    yield from _cron(place, cron) or (Error(problem, id=_id("E011")) for problem in schedule_problems(name, schedule))


def _nearest(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, known, n=1)
    # Lower case is the usual mistake, and too different for a comparison of characters.
    close = close or get_close_matches(name.upper(), known, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(sorted(known))}."


def _id(number: str) -> str:
    return f"{TAG}.{number}"
