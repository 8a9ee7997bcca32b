"""Saved model instances as references: written at enqueue, loaded again when the job runs."""

from __future__ import annotations

import json
from typing import Any

from django.apps import apps
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import DEFAULT_DB_ALIAS, router
from django.db.models import Model

from django_jobs.exceptions import Discard, Fail, PayloadError


def dump_reference(instance: Model, path: str) -> list[Any]:
    """Return `[label, primary key as text]`, and the database if it is not the default one."""
    label = instance._meta.label_lower
    if instance.pk is None or instance._state.adding:
        raise PayloadError(f"{path} is an unsaved instance of {label}. Only its primary key is stored: save it first.")
    # The write database is used: a replica may not have the row yet when the job starts.
    alias = router.db_for_write(type(instance), instance=instance)
    reference = [label, instance._meta.pk.value_to_string(instance)]
    return reference if alias == DEFAULT_DB_ALIAS else [*reference, alias]


def load_reference(reference: Any, on_missing: str) -> Model:
    """Return the row as it is now.  If it no longer exists, raises Fail, or Discard with `on_missing="discard"`."""
    try:
        label, text, *alias = reference
        model = apps.get_model(label)
        key = model._meta.pk.to_python(text)
    except (LookupError, ValueError, TypeError, ValidationError, FieldDoesNotExist) as error:
        raise PayloadError(f"The stored reference {json.dumps(reference)[:200]} cannot be read: {error}") from error
    manager = model._base_manager.using(alias[0]) if alias else model._base_manager
    instance: Model | None = manager.filter(pk=key).first()
    if instance is not None:
        return instance
    message = f"{label} with primary key {text} does not exist any more. It was deleted after the job was enqueued."
    raise Discard(message) if on_missing == "discard" else Fail(message)
