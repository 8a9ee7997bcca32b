"""Forms for reasons, times and arguments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.functional import Promise, lazy
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from django_jobs.core.options.declared import MAX_PRIORITY
from django_jobs.stores import get_store

#: Maximum length: longer arguments could not have been enqueued.
ARGUMENTS = 1_000_000


class MomentField(forms.DateTimeField):
    """A date and time in the current time zone, which the label names, as ms since the epoch; 0 if left empty."""

    widget = forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S")

    def __init__(self, *, label: Promise, **more: Any) -> None:
        super().__init__(label=format_lazy("{} ({})", label, lazy(timezone.get_current_timezone_name, str)()), **more)

    def clean(self, value: Any) -> int:
        at = super().clean(value)
        if at is None:
            return 0
        try:
            return int(at.astimezone(UTC).timestamp() * 1000)
        except (OverflowError, ValueError) as error:
            raise ValidationError(_("This time is out of range.")) from error


#: What the buttons that pause a queue say: the value that they send → its label.
PAUSE_FOR = {"15min": _("15 min"), "1h": _("1 h"), "9:00": _("until 9:00")}


def end_of(pause_for: str, now: int) -> int:
    """Return when (ms) a pause of this length (a key of PAUSE_FOR) ends.  "9:00" is the next one in the current time
    zone."""
    if pause_for != "9:00":
        return now + (15 if pause_for == "15min" else 60) * 60_000
    at = timezone.localtime(datetime.fromtimestamp(now / 1000, UTC))
    nine = at.replace(hour=9, minute=0, second=0, microsecond=0)
    return int((nine if nine > at else nine + timedelta(days=1)).timestamp() * 1000)


class PauseForm(forms.Form):
    """The reason for a pause, and its end: a time, or what a button says."""

    name = forms.CharField(label=_("Job type"), max_length=200, required=False)
    reason = forms.CharField(label=_("Reason"), max_length=500, required=False)
    until = MomentField(label=_("Until"), required=False, help_text=_("Leave it empty to pause until it is resumed."))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Its name is a keyword of Python.
        self.fields["for"] = forms.ChoiceField(choices=list(PAUSE_FOR.items()), required=False)

    def clean_until(self) -> int:
        until = int(self.cleaned_data["until"])
        if until and until <= get_store().now():
            raise ValidationError(_("This time has passed."))
        return until


class RescheduleForm(forms.Form):
    run_at = MomentField(label=_("Run at"))


class KillForm(forms.Form):
    reason = forms.CharField(
        label=_("Reason"), max_length=500, required=False, help_text=_("The log of each job will show it.")
    )


class AgainForm(forms.Form):
    """Whether jobs that are delivered at most once may be started again."""

    start_again = forms.BooleanField(
        label=_("Start the jobs again that are delivered at most once and may have been started"), required=False
    )


class OnceForm(forms.Form):
    """The same, for a choice of only such jobs: without the tick, the action would change nothing."""

    start_again = forms.BooleanField(
        label=_("I have found out what it did, and it may do it again"),
        error_messages={"required": _("Without this, it is not started again.")},
    )


class ArgumentsForm(forms.Form):
    arguments = forms.CharField(
        label=_("Arguments"),
        max_length=ARGUMENTS,
        widget=forms.Textarea(attrs={"rows": 14, "spellcheck": "false", "dir": "ltr", "class": "jobs-code"}),
        help_text=_("JSON: a list of the positional arguments, then an object of the keyword arguments."),
    )

    start_again = forms.BooleanField(label=OnceForm.base_fields["start_again"].label, required=False)

    def clean_arguments(self) -> tuple[list[Any], dict[str, Any]]:
        try:
            call = json.loads(self.cleaned_data["arguments"], parse_constant=no_constant)
        except (ValueError, RecursionError) as error:
            raise ValidationError(_("This is not JSON: %(error)s") % {"error": error}) from error
        if not (isinstance(call, list) and len(call) == 2 and isinstance(call[0], list) and isinstance(call[1], dict)):
            raise ValidationError(_("Write a list of two values: [[positional arguments], {keyword arguments}]."))
        return call[0], call[1]


class AnotherForm(ArgumentsForm):
    queue = forms.ChoiceField(label=_("Queue"))
    priority = forms.IntegerField(label=_("Priority"), min_value=-MAX_PRIORITY, max_value=MAX_PRIORITY)
    #: what is sent twice with the same key is enqueued once: see operations.copying.
    form = forms.CharField(max_length=32, widget=forms.HiddenInput)

    def __init__(self, *args: Any, queues: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        queue = self.fields["queue"]
        assert isinstance(queue, forms.ChoiceField)
        queue.choices = [(name, name) for name in queues]


def no_constant(name: str) -> Any:
    """Raise ValueError: JSON has no NaN and no infinity."""
    raise ValueError(name)
