"""A job without the values that users must not see.  Every page, command and endpoint shows a job through `masked`.

A process that does not know a job's type, and whose record does not name the sensitive arguments, hides all of them.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

from django.utils.crypto import salted_hmac

from django_jobs.core import registry
from django_jobs.core.sensitive import HIDDEN, Call, Scrub, hide, hide_all, scrubbed, scrubber
from django_jobs.core.values import Job, JobInfo
from django_jobs.exceptions import CorruptRecord
from django_jobs.serialization.checked import loaded
from django_jobs.serialization.record import decode, encode, name_of

logger = logging.getLogger("django_jobs.worker")
#: In a record that cannot be read, this shows that its job has sensitive arguments.
_MARK = b'"sensitive"'


def call_of(job: Job) -> Call | None:
    """Return the stored arguments as JSON values; None if they are not a valid call."""
    call = loaded(job.args)
    if not (isinstance(call, list) and len(call) == 2 and isinstance(call[0], list) and isinstance(call[1], dict)):
        return None
    return call[0], call[1]


def shown_call(job: Job, *, arguments: bool = True) -> Call | None:
    """Return the arguments with the sensitive ones hidden; without `arguments`, all of them.  None: no valid call."""
    call = call_of(job)
    if call is None:
        return None
    definition = registry.find(job.name)
    if not arguments or (definition is None and not job.options.sensitive):
        return hide_all(*call)
    shown = hide(job.options.sensitive, *call)
    return definition.hide(*shown) if definition else shown


def names_hidden(job: Job, call: Call) -> bool:
    """Return whether these arguments, which the job has, name values of it that users must not see."""
    return not is_open(job.name, job.options.sensitive) and shown_call(job) != call


def scrubber_of(job: Job, *, arguments: bool = True) -> Scrub | None:
    """Return a function that takes the hidden values of the job out of a text; None if it has none."""
    if arguments and is_open(job.name, job.options.sensitive):
        return None
    call, shown = call_of(job), shown_call(job, arguments=arguments)
    if call is not None and shown is not None:
        return scrubber(call, shown)
    return lambda text: HIDDEN if text else text


def scrub_for(job: Job, following: Job | None = None) -> Scrub | None:
    """Return a function that takes the values of sensitive arguments out of texts; None if the job has none.

    `following`: the same job with the arguments that it has from now on."""
    try:
        scrub = scrubber_of(job)
        if following is None or (more := scrubber_of(following)) is None:
            return scrub
        return more if scrub is None else lambda text: more(scrub(text))
    except Exception:  # an error must be recorded whatever happens, and must then quote nothing
        logger.exception("Sensitive arguments of job %s cannot be told: its error is hidden", job.id)
        return lambda text: HIDDEN if text else text


def shown_key(job: Job, *, arguments: bool = True) -> str:
    """Return the job's concurrency key: a hash instead of the value that may come from a sensitive argument.  Equal
    keys have equal hashes, which cannot be reversed without the project's SECRET_KEY."""
    key = job.controls.limit_key or ""
    # Which of its names a key begins with depends on the code that enqueued the job: no name may be missed here.
    names = {job.options.type, *registry.names_of(job.name)} - {""}
    prefix = next((f"{name}:" for name in names if key.startswith(f"{name}:")), "")
    if not prefix or key.startswith(f"{prefix}#"):  # no JSON begins with "#": it is hashed already
        return key
    if arguments:
        definition = registry.find(job.name)
        option = definition.concurrency_key if definition else None
        if definition and is_open(job.name, job.options.sensitive):
            return key
        named = isinstance(option, str) and definition and option not in definition.sensitive
        if named and option not in job.options.sensitive.split():
            return key
    return f"{prefix}#{salted_hmac('django_jobs.key', key, algorithm='sha256').hexdigest()[:12]}"


def masked(info: JobInfo, *, arguments: bool = True) -> JobInfo:
    """Return the job as users may see it: its record, errors, tracebacks, check-in and result without the values of
    sensitive arguments; without `arguments`, without any argument, result and meta."""
    if arguments and is_open(name_of(info.record), _MARK in info.record):
        return info
    try:
        job = decode(info.id, info.queue, info.record)
    except CorruptRecord:
        return _masked_bytes(info, arguments)
    shown, scrub = shown_call(job, arguments=arguments), scrubber_of(job, arguments=arguments)
    args = json.dumps(shown if shown is not None else HIDDEN, separators=(",", ":")).encode()
    controls = replace(job.controls, limit_key=shown_key(job, arguments=arguments) or job.controls.limit_key)
    meta = scrubbed(job.meta, scrub) if scrub and job.meta else job.meta
    record = encode(job._replace(args=args, controls=controls, meta=meta if arguments else None))
    info = info._replace(record=record, result=info.result if arguments else None)
    return _scrubbed(info, scrub) if scrub else info


def is_open(name: str, sensitive: Any = None) -> bool:
    """Tell whether nothing of a job with that name is hidden here; `sensitive`: what its record says of it."""
    definition = registry.find(name)
    return definition is not None and not definition.sensitive and not sensitive


def _masked_bytes(info: JobInfo, arguments: bool) -> JobInfo:
    """Of a record that this version cannot read, its bytes are all there is to see."""
    definition = registry.find(name_of(info.record))
    if arguments and _MARK not in info.record and not (definition and definition.sensitive):
        return info
    record = b"\n".join([*info.record.split(b"\n", 2)[:2], HIDDEN.encode()])
    return _scrubbed(info._replace(record=record, result=None), lambda text: HIDDEN if text else text)


def _scrubbed(info: JobInfo, scrub: Scrub) -> JobInfo:
    attempts = tuple(
        each._replace(error=scrub(each.error), traceback=scrub(each.traceback), error_type=scrub(each.error_type))
        for each in info.attempts
    )
    result = info.result
    if result is not None:
        result = scrub(result.decode(errors="backslashreplace")).encode()
    return info._replace(attempts=attempts, checkin=scrubbed(info.checkin, scrub), result=result)
