"""Calls each callable of NOTIFY with each finding that starts and ends: once in the fleet."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from threading import Thread
from typing import Any

from django.core.mail import mail_admins
from django.db import connections
from django.utils.module_loading import import_string
from django.utils.translation import override

from django_jobs.conf import get_settings
from django_jobs.operations.diagnosis.causes import KINDS
from django_jobs.operations.diagnosis.facts import NOTIFIERS
from django_jobs.operations.diagnosis.finding import Finding, Severity, parts_of
from django_jobs.operations.diagnosis.report import check, described
from django_jobs.stores import get_store

logger = logging.getLogger("django_jobs.worker")

#: The document of what was told: the key of a finding → its notice, with "at" (ms) and "done".  Its entry TURN says
#: until when (ms) no other worker looks.
DOCUMENT, TURN = "notified", ""
#: ms between two looks of the fleet, and until a message is repeated whose sender died before it was done.
EVERY, AGAIN = 15_000, 60_000
#: Seconds for which a callable may take; it runs in a thread, so that one that hangs holds up nothing.
TIMEOUT = 5.0
#: Messages of one turn: recovery and the other tasks of this process wait meanwhile.
AT_ONCE = 5
#: Callables that have not returned.
_hanging: dict[str, Thread] = {}


@dataclass(frozen=True, slots=True)
class Notice:
    """A finding that has started or ended, as it is given to each callable of NOTIFY."""

    #: "started" | "ended"
    event: str
    kind: str
    #: "error" | "warning"
    severity: str
    subject: str
    says: str
    #: ISO 8601; None: not known.
    since: str | None = None
    act: str | None = None
    #: address of the page in the admin, without the host.
    link: str | None = None


def mail(notice: Notice) -> None:
    """Send a mail to ADMINS: a callable for NOTIFY."""
    lines = [notice.says, notice.act or "", f"Since {notice.since}." if notice.since else "", notice.link or ""]
    mail_admins(f"{notice.event}: {notice.kind} {notice.subject}"[:200], "\n\n".join(filter(None, lines)))


def notify() -> int:
    """Look, and tell what has started and ended since the last look.  Returns how many messages there were."""
    store = get_store()
    told, now = store.get_document(DOCUMENT), store.now()
    turn = told.pop(TURN, None)
    if isinstance(turn, int) and now < turn <= now + EVERY:
        return 0
    if not store.update_document(DOCUMENT, {TURN: now + EVERY}, expected={TURN: turn}):
        return 0
    report = check()
    current = {each.told_as: each for each in reversed(report.findings) if each.severity is not Severity.NOTICE}
    current = dict(reversed(current.items()))  # the worst first, and of several that are told as one, the first
    due = [(key, notice_of(found)) for key, found in current.items() if _is_due(told.get(key), "started", now)]
    kept = {*current, *(found.told_as for found, _ in report.acknowledged)}
    # A rule that could not run does not say that its findings are over, nor does a version that has not this rule.
    over = [key for key in told if key not in kept and parts_of(key)[0] in KINDS and not report.may_hide(key)]
    due += [(key, _ended(told[key])) for key in over if _is_due(told[key], "ended", now)]
    for key, notice in due[:AT_ONCE]:
        # The time of this message: those before it may have taken so long that it would count as one of a dead sender.
        entry = {**asdict(notice), "at": store.now(), "done": False}
        if store.update_document(DOCUMENT, {key: entry}, expected={key: told.get(key)}):
            tell(notice)
            after = {**entry, "done": True} if notice.event == "started" else None
            store.update_document(DOCUMENT, {key: after}, expected={key: entry})
    if len(due) > AT_ONCE:
        store.update_document(DOCUMENT, {TURN: None})
    return min(len(due), AT_ONCE)


def _is_due(entry: Any, event: str, now: int) -> bool:
    """Must this be told?  It was not, or who told it died meanwhile."""
    if not isinstance(entry, dict) or not isinstance(entry.get("at"), int):
        return True
    if entry.get("event") != event:
        return True
    return not entry.get("done") and abs(now - entry["at"]) >= AGAIN  # the clock may have been put back


def notice_of(found: Finding) -> Notice:
    """Return the notice of a finding that has started, in English."""
    with override("en"):
        about = described(found)
    return Notice(
        "started", **{key: about[key] for key in ("kind", "severity", "subject", "says", "since", "act", "link")}
    )


def _ended(entry: Any) -> Notice:
    known = entry if isinstance(entry, dict) else {}
    texts = {key: str(known.get(key, "")) for key in ("kind", "severity", "subject", "says")}
    return Notice("ended", **texts, since=known.get("since"), link=known.get("link"))


def tell(notice: Notice) -> None:
    """Call each callable of NOTIFY; one that fails or hangs is a finding, until it succeeds."""
    store, now = get_store(), get_store().now()
    failed = store.get_document(NOTIFIERS)
    for path in get_settings().notify:
        if error := _error_of(path, notice):
            logger.error("%s could not be told that a finding has %s: %s", path, notice.event, error)
            store.update_document(NOTIFIERS, {path: [now, error]})
        elif path in failed:
            store.update_document(NOTIFIERS, {path: None})


def _error_of(path: str, notice: Notice) -> str:
    """Call one of them.  Returns why it failed; "" if it did not."""
    if path in _hanging and _hanging[path].is_alive():
        return "An earlier call has not returned."
    said: list[str] = []

    def call() -> None:
        try:
            import_string(path)(notice)
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}"[:500])
        else:
            said.append("")
        finally:
            connections.close_all()

    thread = Thread(target=call, daemon=True, name=f"notify {path}")
    thread.start()
    thread.join(TIMEOUT)
    if said:
        return said[0]
    _hanging[path] = thread
    return f"It has not returned for {TIMEOUT:.0f} s."
