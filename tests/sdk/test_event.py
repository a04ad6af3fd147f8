"""The event's bytes: composed once, chained by digest, read back exactly, unknown fields kept."""

import hashlib
import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog import event
from flightlog.errors import InvalidEvent
from flightlog.event import Control, Event
from flightlog.wire import carry

SESSION = "sess_1"
TS = "2026-05-06T14:23:01.123456Z"
GOOD: dict[str, Any] = {
    "v": 1,
    "session_id": SESSION,
    "seq": 2,
    "ts": TS,
    "type": "note",
    "payload": {"text": "hi"},
    "parent_seq": 1,
    "harness_version": "1.4.2",
    "prev": "ab" * 32,
}


def body(**changes: object) -> bytes:
    return json.dumps(GOOD | changes).encode()


def made(seq: int = 1, prev: str | None = None, payload: object = None) -> Event:
    return event.compose(
        session_id=SESSION,
        seq=seq,
        type="note",
        payload=carry.pack(payload),
        prev=prev,
        parent_seq=None,
        harness_version="1",
    )


def read(written: bytes, *, sequence: int = 0) -> Event:
    found = event.decode(written, sequence=sequence)
    assert isinstance(found, Event)
    return found


def test_the_body_is_the_wire_contracts_object_in_its_written_order() -> None:
    first = event.compose(
        session_id=SESSION,
        seq=1,
        type="note",
        payload=carry.pack({"text": "hé"}),
        prev=None,
        parent_seq=None,
        harness_version="1.4.2",
        ts=TS,
    )
    assert first.body.decode() == (
        '{"v":1,"session_id":"sess_1","seq":1,"ts":"2026-05-06T14:23:01.123456Z","type":"note",'
        '"payload":{"text":"hé"},"parent_seq":null,"harness_version":"1.4.2","prev":null}'
    )


def test_the_digest_is_the_sha256_of_the_stored_bytes_and_the_next_events_prev() -> None:
    first = made(1)
    second = made(2, first.digest)
    assert first.digest == hashlib.sha256(first.body).hexdigest() == second.prev


@given(st.recursive(st.none() | st.floats() | st.text() | st.binary(), st.lists, max_leaves=8))
def test_what_was_composed_is_read_back_byte_for_byte(payload: object) -> None:
    sent = made(3, "ab" * 32, payload)
    found = read(sent.body, sequence=9)
    assert msgspec.structs.replace(found, sequence=0) == sent
    assert found.sequence == 9
    assert carry.pack(found.payload) == carry.pack(payload)


def test_the_time_is_utc_with_microseconds() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", made().ts)


def test_unknown_fields_and_types_are_kept_in_the_body() -> None:
    written = body(type="telepathy", extra={"a": [1]}, payload={"new": True})
    found = read(written)
    assert (found.type, found.payload, found.body) == ("telepathy", {"new": True}, written)


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"null",
        b"[1]",
        b"not json",
        b"\xff\xfe",
        body()[:-1],
        body() + b" {}",
        body(seq="2"),
        body(seq=None),
        body(session_id=7),
        body(prev=1),
        body(parent_seq="1"),
        b"{}",
        json.dumps({k: v for k, v in GOOD.items() if k != "payload"}).encode(),
        json.dumps({k: v for k, v in GOOD.items() if k != "seq"}).encode(),
        body().replace(b'"hi"', b'"\xff"').replace(b"note", b"\xff"),
        body(extra=0).replace(b'"extra": 0', b'"extra": ' + b"[" * 99_999 + b"]" * 99_999),
        body().replace(b'{"text": "hi"}', b"[" * 99_999 + b"]" * 99_999),
    ],
)
def test_anything_else_is_refused_as_no_event_and_nothing_else_is_raised(written: bytes) -> None:
    with pytest.raises(InvalidEvent, match="not an event of wire version 1"):
        event.decode(written)


@given(st.binary() | st.text().map(str.encode))
def test_garbage_is_never_more_than_no_event(garbage: bytes) -> None:
    with pytest.raises(InvalidEvent):
        event.decode(garbage)


def test_a_refusal_never_shows_what_was_read() -> None:
    with pytest.raises(InvalidEvent) as refused:
        event.decode(body(seq="hunter2"))
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("type", ["seal", "tombstone"])
def test_a_control_message_has_no_seq_and_is_no_event(type: str) -> None:
    written = event.compose_control(session_id=SESSION, type=type, payload={"count": 3})
    found = event.decode(written, sequence=4)
    assert isinstance(found, Control)
    assert (found.type, found.payload, found.session_id) == (type, {"count": 3}, SESSION)
    assert (found.body, found.sequence) == (written, 4)
    assert "seq" not in json.loads(written)


def test_a_message_without_seq_of_any_other_type_is_no_control() -> None:
    written = event.compose_control(session_id=SESSION, type="surprise", payload={})
    with pytest.raises(InvalidEvent, match="has no seq"):
        event.decode(written)


def test_an_event_that_calls_itself_a_seal_is_still_an_event() -> None:
    assert read(body(type="seal")).seq == 2


def test_a_copy_changes_the_session_and_the_chain_and_nothing_else() -> None:
    source = body(extra={"z": 1, "a": 2}, payload={"n": 12345678901234567890123})
    copy = event.rechain(source, session_id="sess_2", prev="cd" * 32)
    was, now = json.loads(source), json.loads(copy.body)
    assert now == was | {"session_id": "sess_2", "prev": "cd" * 32}
    assert list(now) == list(was)
    assert copy.digest == event.digest_of(copy.body)


def test_a_copy_of_the_first_event_has_no_prev() -> None:
    assert event.rechain(made(1).body, session_id="sess_2", prev=None).prev is None


def test_a_control_message_is_never_copied() -> None:
    seal = event.compose_control(session_id=SESSION, type="seal", payload={})
    with pytest.raises(InvalidEvent, match="never copied"):
        event.rechain(seal, session_id="sess_2", prev=None)


def test_a_payload_is_decoded_anew_so_that_nobody_can_change_the_event() -> None:
    found = made(payload={"list": [1]})
    found.payload["list"].append(2)
    assert found.payload == {"list": [1]}
