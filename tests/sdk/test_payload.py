"""The payload table: one decoder, total; what it does not know is kept."""

import typing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from flightlog.wire import carry, payload
from flightlog.wire.payload import NAMES, TYPES, Payload, Unknown, Writer

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)

SAMPLES: list[Payload] = [
    payload.SessionStarted(
        writer=Writer(1, "ab"), key="k", labels={"job": "x"}, policies={"sh": payload.Policy()}
    ),
    payload.SessionResumed(
        writer=Writer(2, "cd"), in_flight=[payload.CallRef("c1", 4)], snapshot=7
    ),
    payload.SessionReopened(writer=Writer(3, "ef")),
    payload.SessionSuspended(reason="signal"),
    payload.SessionEnded(status="failed", error="it broke"),
    payload.SessionForked(session="sess_1", seq=5, digest="ab"),
    payload.SessionImported(format="claude-code", id="x"),
    payload.UserMessage(content=Raw(b'[{"type":"text","text":"hi"}]'), origin="schedule"),
    payload.ModelMessages(messages=[Raw(b'{"role":"user","content":"hi"}')]),
    payload.ModelRequest(model="m", params={"max_tokens": Raw(b"9")}, rest=[Raw(b"{}")]),
    payload.ModelResponse(message=Raw(b'{"role":"assistant"}'), stop="end_turn"),
    payload.ToolCall(name="sh", call_id="c1", announced_by=4, arguments=Raw(b'{"a":1}')),
    payload.ToolResult(call_id="c1", outcome="unknown", output=Raw(b'"?"'), duration=0.5),
    payload.HookCall(hook="guard", event=Raw(b"1")),
    payload.HookDecision(outcome="failed"),
    payload.DecisionRequested(call=payload.CallRef("c1", None), question="well?"),
    payload.DecisionMade(call=payload.CallRef("c1", 4), ruling="rerun", by="policy"),
    payload.InboxRefused(inbox=12, why="not JSON"),
    payload.ValueRecorded(name="now", value=Raw(b"1.5")),
    payload.Compact(summary=Raw(b'"short"'), keep_from=9, rest=[Raw(b"{}")], provider="p"),
    payload.Rewind(to=7),
    payload.Checkpoint(label="done", data=Raw(b'{"n":1}')),
]


def test_there_is_a_sample_of_every_type() -> None:
    assert {type(sample) for sample in SAMPLES} == set(TYPES.values()) == set(NAMES)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_each_payload_comes_back_equal(sample: typing.Any) -> None:
    assert payload.decode(NAMES[type(sample)], payload.encode(sample)) == sample


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_fields_of_a_later_version_do_not_stop_a_reader(sample: typing.Any) -> None:
    fields = msgspec.json.decode(payload.encode(sample), type=dict[str, Raw])
    written = Raw(msgspec.json.encode(fields | {"of_tomorrow": [1]}))
    assert payload.decode(NAMES[type(sample)], written) == sample


@given(st.sampled_from([*TYPES, "telepathy"]), JSON)
def test_whatever_does_not_fit_is_unknown_and_kept(type: str, value: object) -> None:
    raw = carry.pack(value)
    found = payload.decode(type, raw)
    assert isinstance(found, Unknown | TYPES.get(type, Unknown))
    if isinstance(found, Unknown):
        assert found.raw == raw


@pytest.mark.parametrize(
    ("type", "raw"),
    [
        ("session_started", b'{"writer":{"number":"one","id":"x"}}'),
        ("session_ended", b'{"status":"vanished"}'),
        ("tool_call", b'{"name":"sh"}'),
        ("checkpoint", b'{"label":' + b"[" * 99_999 + b"]" * 99_999 + b"}"),
        ("checkpoint", b'{"of_tomorrow":' + b"[" * 99_999 + b"]" * 99_999 + b"}"),
        ("checkpoint", b'{"label":"\xff"}'),
    ],
)
def test_a_known_type_whose_payload_does_not_fit_is_unknown(type: str, raw: bytes) -> None:
    assert payload.decode(type, Raw(raw)) == Unknown(Raw(raw))


def test_values_of_authors_are_stored_as_they_were_packed() -> None:
    packed = carry.pack({"n": float("nan"), "b": b"x"})
    written = payload.encode(payload.ValueRecorded(name="v", value=packed))
    assert bytes(packed) in bytes(written)


def test_what_is_absent_is_not_written_but_the_writer_always_is() -> None:
    assert bytes(payload.encode(payload.SessionStarted(writer=Writer(1, "ab")))) == (
        b'{"writer":{"number":1,"id":"ab"}}'
    )
