"""Each row of the answer table, as a broker writes it (tests/contract asks a real one)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.bus import answer
from flightlog.bus.answer import Acked, Answer, Busy, Conflict, Full, Oversized, Unclear


def read(raw: bytes) -> Answer:
    return answer.read(raw, stream="FLIGHTLOG_0", limit=1_000)


def refusal(code: int, description: str, *, status: int = 400) -> bytes:
    error = {"code": status, "err_code": code, "description": description}
    return json.dumps({"error": error, "stream": "FLIGHTLOG_0", "seq": 0}).encode()


def test_an_ack_names_the_stream_and_the_last_sequence() -> None:
    assert read(b'{"stream":"FLIGHTLOG_3","seq":7}') == Acked("FLIGHTLOG_3", 7)
    batch = b'{"stream":"FLIGHTLOG_3","seq":9,"batch":"x","count":3,"domain":"hub"}'
    assert read(batch) == Acked("FLIGHTLOG_3", 9)


@pytest.mark.parametrize(
    ("code", "description", "meaning"),
    [
        (10071, "wrong last sequence: 12", Conflict(12)),
        (10071, "wrong last sequence: 0", Conflict(0)),
        (10071, "wrong last sequence", Conflict(None)),
        (10077, "maximum bytes exceeded", Full("FLIGHTLOG_0")),
        (10077, "maximum messages exceeded", Full("FLIGHTLOG_0")),
        (10077, "disk failure", Unclear("error 10077")),
        (10047, "insufficient storage resources available", Full("FLIGHTLOG_0")),
        (10002, "resource limits exceeded for account", Full("FLIGHTLOG_0")),
        (10023, "insufficient resources", Full("FLIGHTLOG_0")),
        (10054, "message size exceeds maximum allowed", Oversized(1_000)),
        (10176, "batch publish sequence is not expected", Busy()),
        (10210, "too many in-flight batches", Busy()),
        (10211, "too many in-flight batches", Busy()),
        (10158, "expected sequence is being written", Unclear("error 10158")),
        (10164, "wrong last sequence", Unclear("error 10164")),
        (10008, "system temporarily unavailable", Unclear("error 10008")),
        (10201, "batch is a duplicate", Unclear("error 10201")),
        (0, "", Unclear("error 0")),
    ],
)
def test_each_refusal_means_what_the_answer_table_says(
    code: int, description: str, meaning: Answer
) -> None:
    assert read(refusal(code, description)) == meaning


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"-ERR",
        b"\xff",
        b'{"stream":"FLIGHTLOG_0"}',
        b'{"stream":"FLIGHTLOG_0","seq":0}',
        b'{"stream":"FLIGHTLOG_0","seq":"7"}',
        b'{"error":{}}',
        b'{"error":"full"}',
    ],
)
def test_whatever_else_comes_leaves_it_unclear(raw: bytes) -> None:
    assert isinstance(read(raw), Unclear)


@given(st.binary())
def test_no_answer_breaks_the_reader(raw: bytes) -> None:
    assert isinstance(read(raw), Unclear)
