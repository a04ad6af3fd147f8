"""Transcripts that nobody would write: any value in any place is mapped or kept, never an error."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flightlog.wire import payload
from flightlog_recorder.importer import BadTranscript, read_claude_code
from flightlog_recorder.importer.drafts import KEPT

DATA = Path(__file__).parent / "data"
LINES = [line for path in sorted(DATA.glob("*.jsonl")) for line in path.read_bytes().splitlines()]

odd_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.just("\ud800"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if not isinstance(value, dict | list):
        return [path]
    below: Any = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(place for key, item in below for place in places(item, (*path, key)))]


def altered(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = altered(value[path[0]], path[1:], new)
    return copy


@st.composite
def odd_lines(draw: st.DrawFn) -> bytes:
    line = draw(st.sampled_from(LINES))
    record = json.loads(line)
    for _ in range(draw(st.integers(0, 2))):
        record = altered(record, draw(st.sampled_from(places(record))), draw(odd_values))
    raw = json.dumps(record).encode()
    cut = draw(st.none() | st.integers(0, len(raw)))
    return raw if cut is None else raw[:cut] + draw(st.binary(max_size=3)).replace(b"\n", b"")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(lines=st.lists(odd_lines(), min_size=1, max_size=12))
def test_whatever_stands_in_a_line_it_is_accounted_for(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / "hostile.jsonl"
    path.write_bytes(b"\n".join([*lines, LINES[0]]) + b"\n")
    imported = read_claude_code(path)
    assert imported.report.balanced
    assert imported.report.lines == len(lines) + 1
    for draft in imported.drafts:
        known = not isinstance(payload.decode(draft.type, draft.payload), payload.Unknown)
        assert known != (draft.type == KEPT)
    assert read_claude_code(path) == imported


@settings(max_examples=200, deadline=None)
@given(data=st.binary(min_size=1, max_size=300))
def test_any_bytes_are_a_transcript_or_refused_as_none(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.jsonl"
    path.write_bytes(data)
    with pytest.raises(BadTranscript):
        read_claude_code(path)
