"""The causes of findings: the kind of each, its sentence in the language of the reader, and what helps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

#: Cause → its kind, and the subject under which `jobs doctor` lists it.
KINDS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("hung", "hung_queue", "hung_workflow", "hung_batch", "neglected"), ("standstill", "standstill")
    ),
    "overdue": ("standstill", "scheduled"), "held_work": ("standstill", "queues"),
    **dict.fromkeys(("silent", "child_silent"), ("silent_worker", "workers")),
    "overrun": ("overrun", "run times"),
    **dict.fromkeys(("schedule_missed", "schedule_broken"), ("schedule_missed", "schedules")),
    "schedule_skipped": ("schedule_skipped", "schedules"),
    **dict.fromkeys(("retries", "retries_type"), ("retries_stuck", "retries")),
    "failing": ("failing", "failures"),
    "clock": ("clocks", "clock"), "server_clock": ("clocks", "clock"),
    "unknown": ("unknown_names", "names"), "notifier": ("notifier", "notify"),
    "stopped_workflow": ("stopped_workflow", "workflows"), "open_batch": ("open_batch", "workflows"),
    "old_pause": ("forgotten_pause", "queues"), "schedule_paused": ("forgotten_pause", "schedules"),
    **dict.fromkeys(("outbox", "outbox_held", "outbox_off"), ("outbox", "outbox")),
    **dict.fromkeys(("no_workers", "no_worker", "narrow"), ("no_worker", "workers")),
    "schedules_idle": ("no_worker", "schedules"),
    "read_only": ("store", "role"), "evicts": ("store", "eviction"),
    **dict.fromkeys(("not_saved", "not_persistent"), ("store", "persistence")),
    **dict.fromkeys(("full", "nearly_full"), ("store", "memory")),
    "latency": ("latency", "latency"), "dead": ("dead", "dead"),
    **dict.fromkeys(("paused", "type_paused"), ("paused", "queues")), "trimmed": ("trimmed", "queues"),
    **dict.fromkeys(("archive", "archive_full", "not_archived"), ("archive", "archive")),
}  # fmt: skip

#: Look, as `Unchecked.what` → the causes that are not found where it was not done; all others: every cause.
FOUND_BY: Mapping[str, tuple[str, ...]] = {
    "failures": ("failing", "retries", "retries_type"),
    "names": ("unknown", "no_workers", "no_worker", "neglected"),
    "server": ("server_clock", "read_only", "not_saved", "not_persistent", "evicts", "full", "nearly_full"),
    "schedules": ("schedule_missed", "schedule_broken", "schedule_skipped", "schedule_paused", "schedules_idle"),
    "archive": ("archive", "archive_full"),
    "outbox": ("outbox", "outbox_held", "outbox_off"),
    "work": ("hung", "hung_queue", "hung_workflow", "hung_batch", "overrun"),
    "pauses": ("held_work",),
    "notifiers": ("notifier",),
    "workflows": ("stopped_workflow", "open_batch"),
}
#: A cause → the one whose place it takes: while the first is there, nobody can say that the second is over.
WIDER: Mapping[str, str] = {
    "no_workers": "no_worker", "retries": "retries_type", "old_pause": "held_work", "archive_full": "archive",
    "full": "nearly_full", "hung_workflow": "overrun", "hung_batch": "overrun",
}  # fmt: skip


COUNTED: dict[str, Callable[[int], str]] = {
    "no_workers": lambda n: ngettext(
        "%(n)s job is waiting, and no worker is running.",
        "%(n)s jobs are waiting, and no worker is running.",
        n,
    ),
    "no_worker": lambda n: ngettext(
        "%(n)s job of %(queue)s is waiting, and no worker serves this queue.",
        "%(n)s jobs of %(queue)s are waiting, and no worker serves this queue.",
        n,
    ),
    "narrow": lambda n: ngettext(
        "The store is too slow for the leases of %(name)s. It claims no jobs from %(n)s of its queues.",
        "The store is too slow for the leases of %(name)s. It claims no jobs from %(n)s of its queues.",
        n,
    ),
    "overdue": lambda n: ngettext(
        "%(n)s job of %(queue)s is overdue: it was due more than a minute ago and has not been started.",
        "%(n)s jobs of %(queue)s are overdue: they were due more than a minute ago and have not been started.",
        n,
    ),
    "unknown": lambda n: ngettext(
        "%(n)s job named %(name)s in %(queue)s waits for a worker that knows it. No running worker does.",
        "%(n)s jobs named %(name)s in %(queue)s wait for a worker that knows them. No running worker does.",
        n,
    ),
    "failing": lambda n: ngettext(
        "%(n)s of %(attempts)s attempts of %(name)s in %(queue)s failed in the last ten minutes; usual: %(usual)s.",
        "%(n)s of %(attempts)s attempts of %(name)s in %(queue)s failed in the last ten minutes; usual: %(usual)s.",
        n,
    ),
    "hung": lambda n: ngettext(
        "%(n)s job of %(queue)s waits behind job %(job)s (%(name)s), which has run for %(ran)s.",
        "%(n)s jobs of %(queue)s wait behind job %(job)s (%(name)s), which has run for %(ran)s.",
        n,
    ),
    "hung_workflow": lambda n: ngettext(
        "%(n)s step of workflow %(name)s waits for job %(job)s (%(type)s), which has run for %(ran)s.",
        "%(n)s steps of workflow %(name)s wait for job %(job)s (%(type)s), which has run for %(ran)s.",
        n,
    ),
    "held_work": lambda n: ngettext(
        "%(n)s job of %(queue)s waits, because %(name)s is paused.",
        "%(n)s jobs of %(queue)s wait, because %(name)s is paused.",
        n,
    ),
    "retries_type": lambda n: ngettext(
        "%(n)s job named %(name)s in %(queue)s is tried again and again, and none has succeeded in the last hour.",
        "%(n)s jobs named %(name)s in %(queue)s are tried again and again, and none has succeeded in the last hour.",
        n,
    ),
    "stopped_workflow": lambda n: ngettext(
        "Workflow %(name)s is stopped: %(n)s step ended without success. Steps that wait for it: %(waiting)s.",
        "Workflow %(name)s is stopped: %(n)s steps ended without success. Steps that wait for them: %(waiting)s.",
        n,
    ),
    "retries": lambda n: ngettext("%(n)s job waits for a retry.", "%(n)s jobs wait for a retry.", n),
    "dead": lambda n: ngettext("%(n)s job of %(queue)s is dead.", "%(n)s jobs of %(queue)s are dead.", n),
    "trimmed": lambda n: ngettext(
        "%(n)s dead job of %(queue)s was dropped: the setting DEAD keeps no more.",
        "%(n)s dead jobs of %(queue)s were dropped: the setting DEAD keeps no more.",
        n,
    ),
    "archive": lambda n: ngettext(
        "%(n)s finished job of %(queue)s has not been written to the archive.",
        "%(n)s finished jobs of %(queue)s have not been written to the archive.",
        n,
    ),
    "archive_full": lambda n: ngettext(
        "%(n)s finished job of %(queue)s waits for the archive, as many as ARCHIVE['BACKLOG'] allows: "
        "jobs that end now are not archived.",
        "%(n)s finished jobs of %(queue)s wait for the archive, as many as ARCHIVE['BACKLOG'] allows: "
        "jobs that end now are not archived.",
        n,
    ),
    "not_archived": lambda n: ngettext(
        "%(n)s finished job of %(queue)s is in no archive: too many waited for it.",
        "%(n)s finished jobs of %(queue)s are in no archive: too many waited for it.",
        n,
    ),
    "outbox": lambda n: ngettext(
        "%(n)s entry of the outbox has waited for half a minute: no worker can send it, or its queue is full.",
        "%(n)s entries of the outbox wait, the oldest for half a minute: no worker can send them, or "
        "their queues are full.",
        n,
    ),
    "outbox_held": lambda n: ngettext(
        "%(n)s entry of the outbox is held until somebody sends it again or deletes it.",
        "%(n)s entries of the outbox are held until somebody sends them again or deletes them.",
        n,
    ),
    "outbox_off": lambda n: ngettext(
        "%(n)s entry is left in the outbox, and OUTBOX is off: nobody sends it. Set OUTBOX on until it is sent, or "
        "delete it.",
        "%(n)s entries are left in the outbox, and OUTBOX is off: nobody sends them. Set OUTBOX on until they are "
        "sent, or delete them.",
        n,
    ),
    "schedules_idle": lambda n: ngettext(
        "%(n)s schedule does not run, because no worker is running.",
        "%(n)s schedules do not run, because no worker is running.",
        n,
    ),
}
PLAIN: dict[str, Callable[[], str]] = {
    "hung_queue": lambda: _(
        "No job of %(queue)s has started for %(time)s, and %(jobs)s wait: jobs that run hang, first %(job)s (%(name)s)."
    ),
    "hung_batch": lambda: _(
        "The callbacks of batch %(name)s wait for job %(job)s (%(type)s), which has run for %(ran)s."
    ),
    "neglected": lambda: _("%(name)s is free and claims nothing, though a job of %(queue)s has waited for %(time)s."),
    "silent": lambda: _("%(name)s has not reported for %(time)s."),
    "child_silent": lambda: _("%(name)s: %(problem)s"),
    "overrun": lambda: _(
        "Job %(job)s (%(name)s) in %(queue)s has run for %(time)s; usually %(name)s takes at most %(usual)s."
    ),
    "schedule_skipped": lambda: _(
        "Schedule %(name)s skipped its run at %(time)s: the job of an earlier run had not ended."
    ),
    "clock": lambda: _("The clock of %(name)s differs from that of the store by %(time)s."),
    "server_clock": lambda: _("The clock of the store differs from this machine's by %(seconds)s s."),
    "open_batch": lambda: _("Batch %(name)s was not closed, and nothing happens in it."),
    "notifier": lambda: _("%(name)s of NOTIFY failed when it was called last."),
    "old_pause": lambda: _("%(name)s has been paused since %(time)s."),
    "schedule_paused": lambda: _("Schedule %(name)s has been paused since %(time)s."),
    "latency": lambda: _("The oldest job of %(queue)s has waited for %(time)s."),
    "paused": lambda: _("%(queue)s is paused."),
    "type_paused": lambda: _("%(name)s is paused in %(queue)s."),
    "schedule_missed": lambda: _("Schedule %(name)s did not run at %(time)s."),
    "schedule_broken": lambda: _("Schedule %(name)s cannot run."),
    "read_only": lambda: _("The store is read-only (%(name)s): no job can be enqueued or run."),
    "not_saved": lambda: _("Redis could not write to its disk: it may refuse every change, and a restart loses jobs."),
    "not_persistent": lambda: _(
        "Redis keeps no append-only file: a restart loses the jobs since its last snapshot. Set `appendonly yes`."
    ),
    "evicts": lambda: _(
        "Redis may delete jobs to make room: its maxmemory-policy is %(name)s. Keys deleted so far: %(n)s. "
        "Set `maxmemory-policy noeviction`."
    ),
    "full": lambda: _("Redis is full: it refuses new jobs (%(n)s %% of maxmemory are in use)."),
    "nearly_full": lambda: _("Redis is nearly full: %(n)s %% of maxmemory are in use."),
}

#: What helps, where the sentence does not say it.
ACTS: dict[str, Callable[[], str]] = {
    "read_only": lambda: _("Let STORE name a primary server, or a file that every process may write."),
    "not_saved": lambda: _("Look into the log of Redis, and make room on its disk."),
    "full": lambda: _("Raise `maxmemory`, delete dead jobs, or keep less HISTORY."),
    "nearly_full": lambda: _("Raise `maxmemory`, delete dead jobs, or keep less HISTORY."),
    **dict.fromkeys(
        ("hung", "hung_workflow", "hung_batch", "overrun"),
        lambda: _("Look at what it does, and cancel it; give the type a timeout."),
    ),
    "hung_queue": lambda: _("Look at what they do, and cancel them; give their types a timeout."),
    "no_worker": lambda: _("Start a worker that serves it. If it has left QUEUES, put it back there first."),
    "neglected": lambda: _("Restart it."),
    "silent": lambda: _("If its process still exists, restart it. Other workers of its queues run its jobs."),
    "child_silent": lambda: _("Restart the worker."),
    "held_work": lambda: _("Resume it if the reason is over."),
    "old_pause": lambda: _("Resume it, or pause it again with a reason."),
    "schedule_paused": lambda: _("Resume it, or switch it off."),
    "schedule_skipped": lambda: _("Look at the job of the earlier run, or let runs overlap."),
    "stopped_workflow": lambda: _("Retry these steps, with get_workflow(id).retry() all of them."),
    "open_batch": lambda: _(
        "Its `with` block raised, or its process died. Enter it again, or cancel it: get_workflow(id).cancel()."
    ),
    "clock": lambda: _("Run NTP on both."),
    "server_clock": lambda: _("Run NTP on both."),
    "failing": lambda: _("The error is beside it; retry the jobs when its cause is gone."),
    "outbox_held": lambda: _("`jobs outbox --held` says why."),
}
