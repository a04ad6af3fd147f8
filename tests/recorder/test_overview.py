"""What a session's events add up to."""

from typing import Any

from flightlog.event import Event
from flightlog_recorder.inspect import overview
from flightlog_recorder.inspect.overview import Overview, Tool, abandoned, in_flight, undecided
from tests.handmade import follow

START = ("session_started", {"writer": {"number": 1, "id": "a"}})
RESUME = ("session_resumed", {"writer": {"number": 2, "id": "b"}})


def seen(*events: tuple[str, Any]) -> Overview:
    last: Event | None = None
    found = Overview()
    for kind, said in events:
        last = follow(last, type=kind, payload=said)
        found = overview.apply(found, last)
    return found


def call(call_id: str, name: str = "sh", **more: Any) -> tuple[str, Any]:
    return "tool_call", {"name": name, "call_id": call_id, **more}


def result(call_id: str, outcome: str = "ok", **more: Any) -> tuple[str, Any]:
    return "tool_result", {"call_id": call_id, "outcome": outcome, **more}


def test_each_outcome_is_counted_by_tool() -> None:
    outcomes = ("ok", "error", "unknown", "cancelled")
    pairs = [each for o in outcomes for each in (call(o), result(o, o, duration=0.5))]
    found = seen(START, *pairs, call("open"), call("other", "ls"))
    assert found.tools["sh"] == Tool(5, ok=1, error=1, unknown=1, cancelled=1, seconds=2.0)
    assert (found.tools["sh"].open, found.tools["ls"].open) == (1, 1)
    assert [trouble.what for trouble in found.troubles] == [
        "sh ended as error",
        "sh ended as unknown",
    ]


def test_another_attempt_is_the_same_call() -> None:
    found = seen(START, call("c"), RESUME, call("c", attempt=2), result("c"))
    assert found.tools["sh"] == Tool(1, ok=1)


def test_a_call_id_used_in_two_turns_is_two_calls() -> None:
    found = seen(
        START,
        call("c", announced_by=2),
        result("c", announced_by=2),
        call("c", announced_by=5),
        result("c", announced_by=5),
    )
    assert (found.tools["sh"], found.orphan_count) == (Tool(2, ok=2), 0)


def test_a_result_without_an_open_call_is_an_orphan() -> None:
    found = seen(START, call("c"), result("c"), result("c"), result("nobody"))
    assert (found.orphan_count, found.orphans) == (2, (4, 5))


def test_turns_are_answered_main_calls() -> None:
    ask: tuple[str, Any] = ("model_request", {"model": "m"})
    side: tuple[str, Any] = ("model_request", {"model": "m", "purpose": "side"})
    answer: tuple[str, Any] = ("model_response", {"message": {"role": "assistant", "content": []}})
    failed: tuple[str, Any] = ("model_response", {"error": "overloaded"})
    found = seen(START, ask, answer, side, answer, ask, failed, ask, answer)
    assert (found.turns, found.side_calls, found.trouble_count) == (2, 1, 1)


def test_calls_in_flight_undecided_and_left_behind_are_told_apart() -> None:
    asked = ("decision_requested", {"call": {"call_id": "c", "announced_by": None}})
    found = seen(START, call("c"), call("d"), RESUME, asked)
    assert [c.call_id for c in undecided(found.state)] == ["c"]
    assert [c.call_id for c in in_flight(found.state)] == ["d"]
    assert abandoned(found) == 0
    ended = overview.apply(found, follow(event_of(found), type="session_ended", payload={}))
    assert abandoned(ended) == 2


def event_of(found: Overview) -> Event:
    last: Event | None = None
    for _ in range(found.state.seq):
        last = follow(last)
    assert last is not None
    return last
