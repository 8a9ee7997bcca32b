"""A job's record: what goes in comes out, and what cannot be read says so."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.core.values import RECORD_FORMAT, Controls, Job, Options
from django_jobs.exceptions import CorruptRecord, NewerRecord
from django_jobs.serialization.checked import LATEST
from django_jobs.serialization.record import decode, encode, has_controls, name_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\t"), min_size=1)
MS = st.integers(0, LATEST)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OPTIONS = st.builds(
    Options,
    max_attempts=st.integers(1, 1000),
    timeout=st.none() | MS,
    on_exhausted=st.sampled_from(["dead", "discard"]),
)
CONTROLS = st.builds(
    Controls,
    priority=st.integers(-100, 100),
    alone=st.booleans(),
    at_most_once=st.booleans(),
    expires_at=st.none() | MS,
    unique=st.none() | st.text("0123456789abcdef", min_size=64, max_size=64),
    unique_mode=st.sampled_from(["queued", "running", "success", "period"]),
    unique_for=MS,
    limit_key=st.none() | TEXT,
    limit=st.integers(0, 1000),
    keep_result=st.none() | MS,
)
JOBS = st.builds(
    Job,
    id=TEXT,
    queue=TEXT,
    name=NAMES,
    args=st.binary(),
    enqueued_at=MS,
    options=OPTIONS,
    controls=CONTROLS,
    meta=st.none() | st.dictionaries(TEXT, JSON, min_size=1, max_size=3),
)


class TestARecord:
    def test_carries_what_only_a_newer_version_knows(self):
        record = b'=\nname\n{"max_attempts":3,"colour":"red"}\n{"priority":5,"shape":[1]}\n1\n\n[[],{}]'
        job = decode("a", "q", record)
        assert (job.options.max_attempts, job.controls.priority) == (3, 5)
        assert encode(job._replace(args=b"[[1],{}]")) == record.replace(b"[[],{}]", b"[[1],{}]")

    @pytest.mark.parametrize(
        "line", ['{"priority":5,', '{"expires_at":7,"unique":"ab",', '{"unique":"%s",' % ("ab" * 32), "{"]
    )
    def test_has_no_unique_key_from_a_value_that_only_a_newer_version_knows(self, line):
        record = b'+\nname\n\n%b"shape":{"unique":"cd"}}\n1\n\n[[],{}]' % line.encode()
        job = decode("a", "q", record)
        assert job.controls.unique == json.loads(f'{line}"":0}}').get("unique")
        assert job.controls.more == '{"shape":{"unique":"cd"}}'

    def test_of_a_newer_format_is_not_taken_for_one_that_can_be_read(self):
        record = f"-\nname\t{RECORD_FORMAT + 1}\n\n\n1\n\n[[],{{}}]".encode()
        with pytest.raises(NewerRecord, match="format 2"):
            decode("a", "q", record)
        assert name_of(record) == "name"

    @given(JOBS)
    def test_gives_back_the_job_it_was_made_from(self, job):
        assert decode(job.id, job.queue, encode(job)) == job

    @given(JOBS)
    def test_is_the_same_bytes_for_the_same_job(self, job):
        assert encode(job) == encode(job._replace())

    @given(JOBS)
    def test_has_its_name_on_the_second_line(self, job):
        assert name_of(encode(job)) == job.name

    @given(JOBS)
    def test_says_in_its_first_byte_whether_there_are_controls(self, job):
        assert has_controls(encode(job)) == (encode(job)[:1] != b"-") == (job.controls != Controls())

    @pytest.mark.parametrize(
        ("controls", "line"),
        [
            (Controls(priority=5, keep_result=60_000), b"="),
            (Controls(unique="ab" * 32, unique_mode="running"), b"="),
            (Controls(unique="ab" * 32), b"+"),
            (Controls(expires_at=5), b"+"),
            (Controls(limit_key="shop.jobs.report", limit=3), b"<3 shop.jobs.report"),
            (Controls(limit_key="<3 a b", limit=12), b"<12 <3 a b"),
            (Controls(limit_key="a\nb", limit=3), b"+"),
            (Controls(limit_key="a\0b", limit=3), b"+"),
            (Controls(limit_key="a", limit=3, expires_at=5), b"+"),
        ],
    )
    def test_says_in_its_first_line_what_matters_where_the_job_starts(self, controls, line):
        record = encode(Job("a", "default", "n", b"[[],{}]", 1, controls=controls))
        assert record.split(b"\n")[0] == line
        assert decode("a", "default", record).controls == controls

    def test_of_a_plain_job_is_short(self):
        job = Job("a", "default", "shop.jobs.receipt", b"[[7],{}]", 1_790_000_000_000)
        assert encode(job) == b"-\nshop.jobs.receipt\n\n\n1790000000000\n\n[[7],{}]"

    def test_keeps_newlines_in_the_arguments(self):
        job = Job("a", "default", "n", b"[\n\n[7],\n{}]\n", 1)
        assert decode("a", "default", encode(job)).args == b"[\n\n[7],\n{}]\n"


class TestBytesThatAreNoRecord:
    @given(st.binary() | st.binary().map(lambda tail: b"-\nn\n" + tail))
    def test_are_read_or_refused_with_our_error_and_no_other(self, record):
        with suppress(CorruptRecord):
            assert decode("a", "default", record).id == "a"

    @pytest.mark.parametrize(
        "record",
        [
            b"",
            b"-\nn\n\n\n1\n",
            b"-\nn\n\n\nnow\n\n[]",
            b"-\nn\n{\n\n1\n\n[]",
            b"-\n\xff\n\n\n1\n\n",
            b'+\nn\n\n{"expires_at":"soon"}\n1\n\n[]',
            b'+\nn\n\n{"priority":true}\n1\n\n[]',
            b'+\nn\n\n["priority"]\n1\n\n[]',
            b'-\nn\n{"max_attempts":[]}\n\n1\n\n[]',
            b'-\nn\n\n\n1\n"text"\n[]',
            b"-\nn\n\n\n1\n" + b"[" * 100_000 + b"\n[]",
        ],
    )
    def test_are_refused_by_an_error_that_says_which_job_it_is(self, record):
        with pytest.raises(CorruptRecord, match=r"'a' in queue 'default'"):
            decode("a", "default", record)

    @given(st.binary())
    def test_still_have_a_name_to_show(self, record):
        assert isinstance(name_of(record), str)
