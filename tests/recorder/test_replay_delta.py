"""The delta between two values: applied to the older, it gives the newer."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flightlog import event as events
from flightlog import state as sessions
from flightlog.event import Event
from flightlog_recorder.replay import delta as deltas
from flightlog_recorder.replay.delta import Change, applied, delta
from flightlog_recorder.replay.picture import changes, picture, whole

GOLDEN = Path(__file__).parents[1] / "golden" / "events-v1.jsonl"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text("ab\n", max_size=4),
    lambda children: (
        st.lists(children, max_size=6)
        | st.dictionaries(st.sampled_from(["seq", "type", "a", "b", "c"]), children)
    ),
    max_leaves=30,
)


def text(value: Any) -> str:
    """Equal for equal values alone: True and 1, or 1 and 1.0, are told apart, NaN is itself."""
    return json.dumps(value, sort_keys=True)


@settings(max_examples=500)
@given(JSON, JSON)
@example([1, 2, 3], [2, 3])
@example([True], [1])
@example({"a": [0, {"seq": 1}, 9]}, {"a": [0, {"seq": 2}, 9]})
def test_the_older_value_and_the_delta_give_the_newer(old: Any, new: Any) -> None:
    before = text(old)
    assert text(applied(old, delta(old, new))) == text(new)
    assert text(old) == before


@settings(max_examples=200)
@given(JSON)
def test_a_value_does_not_differ_from_itself(value: Any) -> None:
    assert delta(value, json.loads(text(value))) == []


@settings(max_examples=300)
@given(st.lists(st.integers(0, 4)), st.lists(st.integers(0, 4)), st.lists(st.integers(0, 4)))
def test_items_put_between_others_are_the_only_changes(
    head: list[int], middle: list[int], tail: list[int]
) -> None:
    found = delta([*head, *tail], [*head, *middle, *tail])
    assert len(found) == len(middle)
    assert {change.kind for change in found} <= {"added"}


def test_list_items_that_are_others_come_and_go_instead_of_changing() -> None:
    old, new = [{"seq": 1, "x": 0}, {"seq": 2}], [{"seq": 1, "x": 1}, {"seq": 7}]
    assert delta(old, new) == [
        Change("removed", (1,), old={"seq": 2}),
        Change("changed", (0, "x"), 0, 1),
        Change("added", (1,), new={"seq": 7}),
    ]


def recorded() -> list[Event]:
    found = [events.decode(line) for line in GOLDEN.read_bytes().splitlines()]
    return [each for each in found if isinstance(each, Event)]


def test_every_step_of_a_session_can_be_made_from_the_state_before_and_its_delta() -> None:
    state = sessions.initial()
    for event in recorded():
        after = sessions.apply(state, event)
        made = applied(whole(picture(state)), changes(state, after))
        assert made == whole(picture(after))
        state = after
    assert state.seq == 39


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (("entries", 3, "content"), "entries[3].content"),
        (("calls", "t1 of 4", "phase"), 'calls["t1 of 4"].phase'),
        ((0,), "[0]"),
        ((), ""),
    ],
)
def test_a_path_is_shown_as_people_write_it(path: deltas.Path, shown: str) -> None:
    assert deltas.shown(path) == shown


def test_texts_differ_by_lines_also_when_they_are_long() -> None:
    old = [f"line {n}" for n in range(100_000)]
    new = [*old[:70_000], "another", *old[70_001:]]
    assert deltas.lines("\n".join(old), "\n".join(new)) == [
        "@@ -1,3 +1,3 @@",
        " line 69999",
        "-line 70000",
        "+another",
        " line 70001",
    ]
