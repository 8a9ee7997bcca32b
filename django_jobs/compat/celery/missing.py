"""Names of Celery that the compatibility layer does not have, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

_UNNEEDED = "Remove it: our worker does not need it."
_KIT = "Use the fixture `jobs` of the test kit: jobs.run_all() (docs/howto/testing.md)."
_MIDDLEWARE = "Write a middleware (docs/howto/middleware.md)."

_STAMPS = "Send headers with the call."
_STATES = "Compare with the text, for example result.state == 'SUCCESS', or call result.ready()."
_BEAT = "runworkers has no beat process: use CELERY_BEAT_SCHEDULE, or the model Schedule."

NAMES: Mapping[str, str] = {
    **dict.fromkeys(("starmap", "xstarmap"), "Use task.starmap(…)."),
    **dict.fromkeys(("map", "xmap"), "Use task.map(…)."),
    "Request": _UNNEEDED,
    "get_logger": "Use logging.getLogger.",
    "DjangoTask": "Use Task: each call waits for the commit.",
    **dict.fromkeys(("AbortableTask", "AbortableAsyncResult"), "Use revoke(terminate=True)."),
    "StampingVisitor": _STAMPS,
    "TaskPool": "Choose --processes and --threads of runworkers.",
    "WorkController": "Start `manage.py runworkers`.",
    **dict.fromkeys(("Service", "PersistentScheduler", "ScheduleEntry", "Scheduler"), _BEAT),
    "DatabaseScheduler": "Use the model Schedule (docs/howto/from-celery.md).",
    **dict.fromkeys(("celery_worker_pool", "use_celery_app_trap", "depends_on_current_app", "celery_config"), _KIT),
    **dict.fromkeys(("celery_parameters", "celery_includes", "celery_worker_parameters", "celery_session_app"), _KIT),
    **dict.fromkeys(("celery_enable_logging", "celery_app", "celery_worker", "celery_session_worker"), _KIT),
    "start_worker": _KIT,
    "solar": "Write a crontab, or a job that computes its next time and calls apply_async(eta=…).",
    "current_app": "Use the names of django_jobs.compat.celery, for example send_task and AsyncResult.",
    "bugreport": "Use `manage.py jobs doctor`.",
    "subtask": "Use signature.",
    "ResultBase": "Use AsyncResult.",
    "ResultSet": "Use a list of AsyncResult, or group(…).",
    **dict.fromkeys(("crontab_parser", "ParseException", "BaseSchedule", "maybe_schedule"), "Use crontab or schedule."),
    "result_from_tuple": "Store the id, and use AsyncResult(id).",
    "allow_join_result": "A job must not wait for another. Use a chain or a chord.",
    **dict.fromkeys(("states", "PENDING", "RECEIVED", "STARTED", "SUCCESS", "FAILURE", "REVOKED", "RETRY"), _STATES),
    **dict.fromkeys(("READY_STATES", "UNREADY_STATES", "EXCEPTION_STATES", "PROPAGATE_STATES"), _STATES),
    "bootsteps": "Use child_started and worker_started of django_jobs.signals.",
    **dict.fromkeys(("Queue", "Exchange"), "List the queues in DJANGO_JOBS['QUEUES'], and pass the name of a queue."),
    "inspect": "Use `manage.py jobs workers`, or the admin.",
    "PeriodicTask": "Use CELERY_BEAT_SCHEDULE, or the model Schedule (docs/howto/from-celery.md).",
}

EXCEPTIONS: Mapping[str, str] = {
    "AlreadyRegistered": "A name that is used twice raises django_jobs.InvalidJob.",
    "QueueNotFound": "An unknown queue raises django_jobs.UnknownQueue.",
    **dict.fromkeys(("BackendError", "BackendGetMetaError", "BackendStoreError"), "Catch django_jobs.StoreError."),
    "InvalidTaskError": "Arguments that do not fit raise TypeError when the task is called.",
    "NotConfigured": "Wrong settings raise ImproperlyConfigured when Django starts.",
    "DuplicateTaskNameWarning": "A name that is used twice raises django_jobs.InvalidJob.",
    **dict.fromkeys(("CeleryWarning", "AlwaysEagerIgnored", "DuplicateNodenameWarning", "FixupWarning"), _UNNEEDED),
    **dict.fromkeys(("SecurityWarning", "CeleryCommandException"), _UNNEEDED),
    "reraise": "Write `raise`.",
    **dict.fromkeys(("IncompleteStream", "SecurityError", "CDeprecationWarning"), _UNNEEDED),
    "CPendingDeprecationWarning": _UNNEEDED,
    "Terminated": "A task that is revoked with terminate=True is ended, and sees nothing.",
    "WorkerShutdown": "Send SIGTERM to runworkers.",
    "WorkerTerminate": "Send SIGQUIT to runworkers.",
}

_LOGGING = "Use Django's setting LOGGING."
_STARTED = "Use worker_started of django_jobs.signals, or worker_process_init for each process."

SIGNALS: Mapping[str, str] = {
    **dict.fromkeys(("task_received", "eventlet_pool_apply"), "Use task_prerun."),
    "task_rejected": "An unreadable message is a dead job: use job_dead of django_jobs.signals.",
    "task_unknown": "Jobs of unknown types wait: see `manage.py jobs doctor`.",
    "task_internal_error": "Use job_dead of django_jobs.signals.",
    "task_sent": "Use after_task_publish.",
    **dict.fromkeys(("celeryd_init", "celeryd_after_setup", "worker_init", "worker_ready"), _STARTED),
    **dict.fromkeys(("worker_before_create_process", "eventlet_pool_started", "eventlet_pool_preshutdown"), _STARTED),
    "eventlet_pool_postshutdown": _STARTED,
    "import_modules": "Each app's tasks.py is imported before the worker starts.",
    **dict.fromkeys(("worker_shutting_down", "worker_shutdown"), "Use worker_stopped of django_jobs.signals."),
    "heartbeat_sent": "Probe runworkers --http (docs/howto/deploy.md).",
    **dict.fromkeys(("setup_logging", "after_setup_logger", "after_setup_task_logger"), _LOGGING),
    **dict.fromkeys(("beat_init", "beat_embedded_init"), "runworkers has no beat process. " + _STARTED),
    "user_preload_options": "Write a management command.",
}

#: Attributes and methods of tasks.
OF_TASKS: Mapping[str, str] = {
    "replace": "Enqueue the next task at the end of this one, or use a Batch with current_batch().",
    "add_to_chord": "Use a Batch with current_batch(): a job of it may add jobs.",
    "subtask": "Use signature.",
    "backend": "Results are in the store: use AsyncResult(id).",
    "annotate": _MIDDLEWARE,
    "add_around": _MIDDLEWARE,
    "shadow_name": "Jobs are shown under their own names; use tags in @job.",
    "send_event": "Use self.update_state(…), which the admin shows.",
    "add_trail": "Children of a task are not recorded. Use a Batch.",
    "Strategy": _UNNEEDED,
    "Request": _UNNEEDED,
    "AsyncResult": "Use django_jobs.compat.celery.AsyncResult.",
    "request_stack": "Use self.request.",
    **dict.fromkeys(("push_request", "pop_request"), "In tests, call task.apply(…)."),
    "signature_from_request": "Use self.signature(self.request.args, self.request.kwargs).",
}

#: Attributes of signatures, chains, groups and chords.
OF_PARTS: Mapping[str, str] = {
    "stamp": _STAMPS,
    "freeze": "The id is known when apply_async has returned.",
    "id": "The id is known when apply_async has returned, or give task_id.",
    "replace": "Make a new signature, or use clone.",
    "from_dict": "Store the name and the arguments, and use signature(name, args).",
    "subtask_type": "Use isinstance.",
    "unchain_tasks": "Use tasks.",
    "app": "Signatures belong to no application.",
}

#: Attributes of Celery's results that these have not, and what to write.
OF_RESULTS: Mapping[str, str] = {
    "collect": "use a chain or a chord, which pass results on.",
    "iterdeps": "use the steps of a workflow.",
    **dict.fromkeys(("graph", "build_graph"), "the admin shows workflows."),
    "get_leaf": "use the result of the last task of a chain.",
    "on_ready": "use link.",
    "then": "use link or a chain.",
    "date_done": "use get_job(id).refresh().",
    **dict.fromkeys(("args", "kwargs"), "use get_job(id)."),
    "retries": "count get_job(id).attempts.",
    "worker": "use get_job(id).attempts.",
    "backend": "results are in the store.",
    "app": "results belong to no application.",
    "supports_native_join": "remove it.",
    **dict.fromkeys(("iter_native", "as_list"), "iterate over results."),
    "join_native": "use join.",
    "add": "make the group with all its tasks.",
    "maybe_throw": "use get.",
    "as_tuple": "store the id.",
}

_MODELS = "Call model_validate and model_dump in the task."

#: Options of `@shared_task` and `@app.task`, and attributes of base classes.
TASK_OPTIONS: Mapping[str, str] = {
    "rate_limit": "There is no rate yet. Limit how many run at the same time with @job(max_concurrency=…).",
    "backend": "Results are in the store. Remove it.",
    **dict.fromkeys(("exchange", "exchange_type", "routing_key"), "Use queue=…."),
    "delivery_mode": "Every job is stored before delay() returns. Remove it.",
    **dict.fromkeys(("pydantic", "pydantic_strict", "pydantic_context", "pydantic_dump_kwargs"), _MODELS),
    "shadow_name": "Jobs are shown under their own names. Remove it.",
    "resultrepr_maxsize": "Remove it.",
    "store_eager_result": "Remove it: apply() returns its result.",
    "acks_on_failure": "Write autoretry_for=(Exception,) if a failed task is to run again.",
    "acks_on_timeout": "Write @job(retry_on=(TimeoutError,)) if a task is to run again after its time limit.",
    "acks_on_failure_or_timeout": "Write autoretry_for=(Exception,) if a failed task is to run again.",
    "retry_on_worker_lost": "Use acks_late=True.",
}

#: Options of `apply_async`.
CALL_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("exchange", "routing_key"), "Use queue=…."),
    **dict.fromkeys(("producer", "publisher", "connection", "mandatory", "immediate"), "Remove it."),
    "retry_policy": "A call tries for at most 5 s. Remove it, or use OUTBOX.",
    "shadow": "Jobs are shown under their own names. Remove it.",
    "add_to_parent": "Children of a task are not recorded. Remove it.",
    "chord": "Use chord(header)(body).",
    "chain": "Use chain(…).",
    "group_id": "Use group(…).",
    **dict.fromkeys(("root_id", "parent_id"), "Remove it, or send it in headers."),
    "reply_to": "Use AsyncResult(id).",
    "delivery_mode": "Every job is stored before the call returns. Remove it.",
    "stamped_headers": "Send them in headers.",
    "max_retries": "Set it in the decorator, or pass it to self.retry().",
}

#: Settings, without the prefix CELERY_, that would change what tasks do.
SETTINGS: Mapping[str, str] = {
    "task_annotations": "Write the options into the decorators.",
    "task_default_rate_limit": TASK_OPTIONS["rate_limit"],
    "task_acks_on_failure_or_timeout": TASK_OPTIONS["acks_on_failure_or_timeout"],
    "task_retry_on_worker_lost": TASK_OPTIONS["retry_on_worker_lost"],
    "task_allow_error_cb_on_chord_header": "Write the body as a job that looks at the results.",
    "task_protocol": "Remove it: Celery's workers cannot read our jobs.",
}


def refuse(module: str, name: str, known: Mapping[str, str]) -> NoReturn:
    """Raise ImportError with the remedy for a name that Celery has, AttributeError for any other."""
    if name in known:
        raise ImportError(f"{module} has no {name}. {known[name]}", name=module)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")
