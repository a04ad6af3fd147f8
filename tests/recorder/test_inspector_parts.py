"""Values as lines: nothing of any size is sent unasked, and all of it can be had."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog_recorder.inspector import parts
from flightlog_recorder.inspector.parts import LINES, NAME, WIDTH
from flightlog_recorder.replay import delta

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


def test_a_text_is_cut_and_its_path_leads_to_all_of_it() -> None:
    value = {"a": ["short", "x" * 5_000]}
    found = parts.parts(value)
    cut = found.lines[-1]
    assert (len(cut.text), cut.size, cut.path) == (WIDTH, 5_000, ("a", 1))
    assert parts.part(value, cut.path or ()) == "x" * 5_000
    assert found.lines[2].path is None


def test_a_path_that_leads_nowhere_is_refused() -> None:
    paths: list[delta.Path] = [("b",), (0,), ("a", 7), ("a", "x"), ("a", 0, "deeper")]
    for path in paths:
        with pytest.raises(parts.NoSuchPart):
            parts.part({"a": ["short"]}, path)


@given(VALUES)
def test_every_leaf_of_a_value_has_its_line(value: object) -> None:
    found = parts.parts(value)
    assert not found.more
    assert sum(line.kind not in ("object", "list") for line in found.lines) == leaves(value)


def leaves(value: object) -> int:
    match value:
        case dict():
            return sum(map(leaves, value.values()))
        case list():
            return sum(map(leaves, value))
        case _:
            return 1


def test_what_is_sent_is_bounded_whatever_the_value() -> None:
    huge = {"k" * 100_000: ["y" * 100_000] * 10_000}
    found = parts.parts(huge)
    assert found.more
    assert len(found.lines) == LINES
    sent = sum(len(line.text) + len(line.name) for line in found.lines)
    assert sent <= LINES * (WIDTH + NAME)


def test_a_blob_is_its_beginning_and_its_size() -> None:
    blob = {"digest": "0" * 64, "size": 9_000_000, "kind": "text", "head": "It begins"}
    [_, line] = parts.parts({"content": {"$flightlog": "blob", "value": blob}}).lines
    assert (line.kind, line.text, line.size, line.path) == (
        "blob",
        "It begins",
        9_000_000,
        ("content",),
    )


def test_a_long_text_that_became_another_is_told_by_its_lines_alone() -> None:
    old = "\n".join(f"line {n} of a long text" for n in range(2_000))
    [shown] = parts.changes(
        delta.delta({"text": old}, {"text": old.replace("line 7 ", "line 7! ")})
    )
    assert shown.path == "text"
    assert shown.lines is not None
    assert [line for line in shown.lines if line[0] in "+-"] == [
        "-line 7 of a long text",
        "+line 7! of a long text",
    ]
    assert (shown.at, shown.more) == (("text",), False)
    [cut] = parts.changes(delta.delta({"text": old}, {"text": old.replace("line", "row")}))
    assert cut.more


def test_what_changes_with_every_event_is_marked_as_usual() -> None:
    changes = parts.changes(
        delta.delta({"seq": 1, "status": "new"}, {"seq": 2, "status": "running"})
    )
    assert {change.path: change.usual for change in changes} == {"seq": True, "status": False}
