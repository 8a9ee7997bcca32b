"""Saved model instances as references: written at enqueue, loaded again just before the job's function runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import DEFAULT_DB_ALIAS, router
from django.db.models import Model

from django_jobs.exceptions import Discard, Fail, PayloadError


@dataclass(frozen=True, slots=True)
class ModelReference:
    """A saved instance that is not loaded: what middleware finds in the arguments in place of the instance."""

    model: type[Model]
    pk: Any
    #: the alias of its database; None = the router decides when it is loaded.
    database: str | None
    #: as it is stored.
    written: list[Any] = field(repr=False, compare=False)

    def load(self, on_missing: str) -> Model:
        """Return the row as it is now.  If it no longer exists, raises Fail, or Discard with `on_missing="discard"`."""
        manager = self.model._base_manager
        instance: Model | None = (manager.using(self.database) if self.database else manager).filter(pk=self.pk).first()
        if instance is not None:
            return instance
        label = self.model._meta.label_lower
        message = (
            f"{label} with primary key {self.pk} does not exist any more. It was deleted after the job was enqueued."
        )
        raise Discard(message) if on_missing == "discard" else Fail(message)


def dump_reference(instance: Model, path: str) -> list[Any]:
    """Return `[label, primary key as text]`, and the database if it is not the default one."""
    label = instance._meta.label_lower
    if instance.pk is None or instance._state.adding:
        raise PayloadError(f"{path} is an unsaved instance of {label}. Only its primary key is stored: save it first.")
    # The write database is used: a replica may not have the row yet when the job starts.
    alias = router.db_for_write(instance.__class__, instance=instance)  # of a lazy object, what it wraps
    reference = [label, instance._meta.pk.value_to_string(instance)]
    return reference if alias == DEFAULT_DB_ALIAS else [*reference, alias]


def read_reference(written: Any) -> ModelReference:
    """Return what `dump_reference` wrote, without a look into the database.  Raises PayloadError."""
    try:
        label, text, *alias = written
        model = apps.get_model(label)
        return ModelReference(model, model._meta.pk.to_python(text), alias[0] if alias else None, written)
    except (LookupError, ValueError, TypeError, ValidationError, FieldDoesNotExist) as error:
        raise PayloadError(f"The stored reference {json.dumps(written)[:200]} cannot be read: {error}") from error


def load_references(value: Any, on_missing: str) -> Any:
    """Return the value with each reference replaced by its instance."""
    kind = type(value)
    if kind is ModelReference:
        return value.load(on_missing)
    if kind is list or kind is tuple:
        return kind(load_references(item, on_missing) for item in value)
    if kind is dict:
        return {key: load_references(item, on_missing) for key, item in value.items()}
    return value
