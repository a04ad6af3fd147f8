"""Snapshots: whole or not at all, and the state of released event versions never changes."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flightlog import snapshot, state
from flightlog.cache.cut import Cut
from flightlog.event import Event, decode
from flightlog.snapshot import SESSION, Snapshot
from flightlog.wire import payload
from tests.sdk.tale import Tale, begun, text

GOLDEN = Path(__file__).parent.parent / "golden"


def taken(tale: Tale) -> Snapshot:
    return Snapshot(
        projection=SESSION.name,
        version=SESSION.version,
        schema=1,
        seq=tale.state.seq,
        sequence=tale.state.seq + 100,
        part="live",
        read_to=tale.state.seq + 101,
        digest=tale.state.digest or "",
        writers=tale.state.writers,
        cut=snapshot.cut(SESSION, tale.state),
    )


def test_a_snapshot_comes_back_as_it_was_written() -> None:
    tale = begun()
    tale.turn(text("hi\nthere"))
    found = snapshot.read(snapshot.write(taken(tale)))
    assert found is not None
    assert replace(found, cut=taken(tale).cut) == taken(tale)
    assert snapshot.join(SESSION, found.cut).messages() == tale.state.messages()


def test_states_with_newlines_and_no_bytes_at_all_are_kept() -> None:
    for raw in (b"", b"\n", b"\n\n{}\n", bytes(range(256))):
        each = Snapshot(
            projection="p", version=2, schema=1, seq=1, sequence=1, part="base", read_to=1,
            digest="d", cut=Cut(raw),
        )  # fmt: skip
        assert snapshot.read(snapshot.write(each)) == each


def test_the_header_is_one_line_of_json_and_names_position_and_checksum() -> None:
    value = snapshot.write(taken(begun()))
    head = snapshot.header(value)
    assert value.startswith(head + b"\n")
    fields = json.loads(head)
    assert (fields["projection"], fields["version"], fields["seq"]) == (
        "session",
        snapshot.SESSION.version,
        2,
    )
    assert len(fields["checksum"]) == 64


@pytest.mark.parametrize("value", [b"", b"\n", b"{}", b"null\n{}", b"\x00" * 50, b"garbage\nmore"])
def test_garbage_is_no_snapshot(value: bytes) -> None:
    assert snapshot.read(value) is None


def test_a_snapshot_cut_anywhere_is_none() -> None:
    value = snapshot.write(taken(begun()))
    assert all(snapshot.read(value[:at]) is None for at in range(len(value)))
    assert snapshot.read(value + b" ") is None


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_snapshot_with_any_byte_changed_is_none_or_says_the_same(at: int, change: int) -> None:
    good = snapshot.write(taken(begun()))
    value = bytearray(good)
    value[at % len(value)] ^= change
    assert snapshot.read(bytes(value)) in (None, snapshot.read(good))  # a frame has idle bits


def test_a_header_with_fields_of_another_is_none() -> None:
    first, second = begun(), begun()
    second.user("more")
    one, two = snapshot.write(taken(first)), snapshot.write(taken(second))
    mixed = snapshot.header(one) + b"\n" + two.partition(b"\n")[2]
    assert snapshot.read(mixed) is None


def golden_events() -> list[Event]:
    lines = (GOLDEN / "events-v1.jsonl").read_bytes().splitlines()
    found = [decode(line) for line in lines]
    assert all(isinstance(each, Event) for each in found)
    return [each for each in found if isinstance(each, Event)]


def test_the_golden_log_of_version_1_chains_and_every_payload_in_it_is_read() -> None:
    events = golden_events()
    assert [each.seq for each in events] == list(range(1, len(events) + 1))
    assert [each.prev for each in events[1:]] == [each.digest for each in events[:-1]]
    unread = [e.type for e in events if isinstance(payload.decode(e.type, e.raw), payload.Unknown)]
    assert unread == ["of_another_maker"]


def told(events: list[Event]) -> list[dict[str, Any]]:
    """What a harness sees after each event; the messages only where they changed."""
    found, before, seen = state.initial(), list[Any](), list[dict[str, Any]]()
    for each in events:
        found = state.apply(found, each)
        told: dict[str, Any] = {"seq": found.seq, "status": found.status, "next": repr(found.next)}
        messages = found.messages()
        told |= {"messages": messages} if messages != before else {}
        seen.append({**told, "inbox": found.inbox, "usage": msgspec.to_builtins(found.usage)})
        before = messages
    return seen


def test_the_golden_log_of_version_1_folds_to_the_same_states_for_ever() -> None:
    lines = (GOLDEN / "states-v1.jsonl").read_bytes().splitlines()
    assert told(golden_events()) == [json.loads(line) for line in lines]
