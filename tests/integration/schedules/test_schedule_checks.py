"""What is wrong with SCHEDULES is said before anything runs."""

import pytest
from django.test import override_settings

from django_jobs.checks import check_jobs
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition


def greet(name, times=1):
    """A job."""


@pytest.fixture(autouse=True)
def known_job(empty_registry):
    registry.register(JobDefinition(greet, name="tests.greet"))
    yield
    registry.unregister("tests.greet")


def problems(**entry):
    schedule = {"job": "tests.greet", "cron": "0 3 * * *", "args": ["Ada"], **entry}
    with override_settings(DJANGO_JOBS={"STORE": "memory", "SCHEDULES": {"nightly": schedule}}):
        return [f"{each.id} {each.msg}" for each in check_jobs()]


def test_a_good_entry_is_accepted():
    assert problems(timezone="Asia/Kathmandu", missed="skip", overlap="skip", jitter=30, kwargs={"times": 2}) == []


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"cron": "0 0 31 feb *"}, "E010"),
        ({"cron": "", "every": "90"}, "E010"),
        ({"cron": "", "queue": "slw", "every": 90}, "queue is 'slw', which is not in QUEUES"),
        ({"priority": "high"}, "priority is 'high': use a whole number"),
        ({"expires_in": -1}, "expires_in is -1: use a duration"),
        ({"timezone": "Mars/Olympus"}, "timezone is 'Mars/Olympus'"),
        ({"missed": "none"}, "missed is 'none'. Write one of 'one', 'skip', 'all'."),
        ({"overlap": "queue"}, "overlap is 'queue'"),
        ({"jitter": -1}, "jitter is -1"),
        ({"jitter": True}, "jitter is True"),
        ({"enabled": "yes"}, "enabled is 'yes'"),
        ({"args": "Ada"}, "args is of type str. Write a list"),
        ({"args": []}, "missing a required argument"),
        ({"kwargs": {"loud": True}}, "cannot be called like this"),
        ({"args": [object()]}, "object"),
        ({"kwargs": ["times"]}, "kwargs is of type list"),
        ({"kwargs": {7: 1}}, "kwargs has a key of type int"),
        ({"time_zone": "UTC"}, "unknown key 'time_zone'"),
        ({"job": None}, "E011"),
        ({"job": ["tests.greet"]}, "E011"),
        ({"cron": "", "every": float("inf")}, "E010"),
        ({"cron": "", "every": float("nan")}, "E010"),
        ({"queue": ["default"]}, "queue is ['default'], which is not in QUEUES"),
    ],
)
def test_a_bad_entry_is_named_with_the_remedy(entry, said):
    found = problems(**entry)
    assert len(found) == 1
    assert said in found[0]
    assert "SCHEDULES" in found[0]


SECRET = "4111-1111"


@pytest.mark.parametrize(
    "entry",
    [
        {"args": SECRET},
        {"kwargs": [SECRET]},
        {"args": [SECRET] * 3},
        {"args": [{SECRET}]},
        {"args": [f"{SECRET} \ud800"]},
    ],
)
def test_what_is_said_of_a_bad_call_quotes_no_argument(entry):
    """Pages show it to people who may not see arguments."""
    found = problems(**entry)
    assert len(found) == 1
    assert SECRET not in found[0]
