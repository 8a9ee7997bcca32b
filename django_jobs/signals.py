"""Signals, sent with send_robust after the event: a receiver sees what has happened and cannot make a job fail.

The sender of each job signal is the JobDefinition (None if the name is not known).  All have these arguments:

    job_id, name, queue   strings
    attempt               1 for the first start; 0 where none was made
    job                   the RunningJob where this process ran it, if the receiver was connected then; else None

Each signal has arguments of its own:

    job_enqueued     handle (JobHandle; where it is sent in bulk, once per job)
    job_succeeded    run_ms, wait_ms
    job_failed       error (exception, or text where it happened in another process), run_ms; for each failed attempt
    job_retried      error, delay_ms
    job_dead         error, outcome ("failed", "retried" (it raised Retry in its last attempt), "timeout",
                     "worker_lost", "misplaced" (a fault of the store lost its state), "corrupt", "killed")
    job_cancelled    error (the reason)

worker_started and worker_stopped have the worker's name as `name`; the parent process sends them with sender None.
child_started and child_stopping have the child's name; each process that runs jobs sends them, before its first job and
when it ends in order.
"""

from __future__ import annotations

from django.dispatch import Signal

job_enqueued = Signal()
job_started = Signal()
job_succeeded = Signal()
job_failed = Signal()
job_retried = Signal()
job_dead = Signal()
job_cancelled = Signal()
job_expired = Signal()
worker_started = Signal()
worker_stopped = Signal()
child_started = Signal()
child_stopping = Signal()
