"""Rows of a timeline: lanes, durations, crashes, errors; and marks, in a bounded number."""

from typing import Any

from flightlog.event import Event
from flightlog_recorder.inspector.marks import PLACES, Marks
from flightlog_recorder.inspector.timeline import LANES, Row, rows
from tests.handmade import follow

CALL = {"name": "add", "call_id": "t1", "announced_by": 4}


def told(*said: tuple[str, Any]) -> list[Event]:
    events: list[Event] = []
    for kind, payload in said:
        last = events[-1] if events else None
        events.append(follow(last, type=kind, payload=payload))
    return events


def call(n: int) -> tuple[str, Any]:
    return "tool_call", {"name": "add", "call_id": f"t{n}", "announced_by": 1}


def result(n: int, **more: Any) -> tuple[str, Any]:
    return "tool_result", {"call_id": f"t{n}", "announced_by": 1, **more}


def lanes(found: list[Row]) -> list[str]:
    return [row.lanes for row in found]


def test_tools_that_run_at_once_have_lanes_of_their_own_and_free_ones_are_taken_again() -> None:
    found = rows(
        told(call(1), call(2), call(3), result(2), call(4), result(1), result(4), result(3))
    )
    assert lanes(found) == ["s", "ls", "lls", "lel", "lsl", "ell", ".el", "..e"]
    assert [row.lane for row in found] == [0, 1, 2, 1, 1, 0, 1, 2]
    assert [row.partner for row in found[3:]] == [2, None, 1, 5, 3]


def test_more_calls_than_lanes_lose_no_row() -> None:
    many = range(LANES + 3)
    found = rows(told(*(call(n) for n in many), *(result(n) for n in many)))
    assert len(found) == 2 * len(many)
    assert max(len(row.lanes) for row in found) == LANES
    assert found[-1].partner == LANES + 3


def test_a_call_that_is_run_again_keeps_its_lane() -> None:
    found = rows(told(call(1), call(1), result(1)))
    assert lanes(found) == ["s", "l", "e"]


def test_a_result_says_how_long_it_took_or_the_times_of_the_two_do() -> None:
    [_, told_by_itself] = rows(told(call(1), result(1, duration=1.5)))
    [_, told_by_times] = rows(told(call(1), result(1)))
    [orphan] = rows(told(result(1)))
    assert (told_by_itself.took, told_by_times.took, orphan.took) == (1.5, 0.0, None)


def test_times_that_are_none_and_payloads_that_fit_nothing_stop_no_row() -> None:
    odd = [("tool_call", None), ("tool_result", [1]), ("model_request", 3), ("\x00", {"a": 1})]
    assert [row.type for row in rows(told(*odd))] == [kind for kind, _ in odd]


def test_a_resume_without_a_suspend_before_it_is_a_crash() -> None:
    resumed = ("session_resumed", {"writer": {"number": 2, "id": "b"}})
    left = rows(told(("session_suspended", {}), resumed))
    died = rows(told(("user_message", {"content": "hi"}), resumed))
    assert (left[1].mark, died[1].mark) == ("resumed", "crash")


def test_a_crash_ends_the_model_call_under_way_but_not_the_tools() -> None:
    resumed = ("session_resumed", {"writer": {"number": 2, "id": "b"}})
    found = rows(told(("model_request", {}), call(1), resumed, result(1)))
    assert lanes(found) == ["s", "ls", ".l", ".e"]


def test_what_came_before_a_window_tells_what_is_under_way_in_it() -> None:
    events = told(call(1), call(2), result(1), result(2))
    assert lanes(rows(events, first=3)) == ["el", ".e"]


def test_errors_effects_and_turns_are_marked() -> None:
    reading = {**CALL, "effect": "read"}
    found = rows(
        told(
            ("user_message", {"content": "hi"}),
            ("tool_call", CALL),
            ("tool_result", {"call_id": "t1", "announced_by": 4, "outcome": "error"}),
            ("tool_call", {**reading, "call_id": "t2"}),
            ("compact", {"summary": "s", "keep_from": 1}),
        )
    )
    assert [row.turn for row in found] == [True, False, False, False, False]
    assert [row.error for row in found] == [False, False, True, False, False]
    assert [row.effect for row in found] == [False, True, False, False, False]
    assert found[4].mark == "compaction"


def test_marks_are_few_whatever_the_length_and_the_worst_of_a_place_stays() -> None:
    error = ("tool_result", {"call_id": "t1", "outcome": "error"})
    short = Marks(3)
    short.take(told(("user_message", {"content": "hi"}), error, ("checkpoint", {})))
    assert short.found() == [(1, "turn"), (2, "error"), (3, "context")]
    talking = told(*[("user_message", {"content": "hi"})] * 1_000, error)
    long = Marks(len(talking))
    long.take(talking)
    assert len(long.found()) <= PLACES
    assert long.found()[-1] == (1_001, "error")
