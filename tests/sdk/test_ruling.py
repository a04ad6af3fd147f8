"""Rulings: every call in flight gets exactly one, by its policy or by a person."""

import pytest
from hypothesis import given, settings
from msgspec import Raw

from flightlog.running import ruling
from flightlog.step import CallModel, Decide, RunTools, Step
from flightlog.wire import payload as payloads
from flightlog.wire.payload import (
    CallRef,
    DecisionMade,
    DecisionRequested,
    HookDecision,
    ToolResult,
)
from tests.sdk.tale import Tale, begun, tool_use
from tests.sdk.wild import tales


def flying(*policies: str) -> Tale:
    """A session whose process died with one call running for each policy."""
    tale = begun()
    tale.turn(*(tool_use(policy, x=1) for policy in policies))
    for policy in policies:
        tale.call(policy, on_resume=policy, arguments={"x": 1})
    tale.resumed()
    return tale


def owed(tale: Tale) -> Step:
    return tale.state.next


def words(tale: Tale) -> list[tuple[str, str]]:
    said = list[tuple[str, str]]()
    for each in ruling.on_resume(tale.state):
        match each.payload:
            case DecisionMade(call=call, ruling=made):
                said.append((call.call_id, made))
            case DecisionRequested(call=call):
                said.append((call.call_id, "asked"))
            case ToolResult(call_id=call_id, outcome=outcome):
                said.append((call_id, outcome))
            case HookDecision(outcome=outcome):
                said.append(("hook", outcome))
            case _:
                said.append(("nobody", "nothing"))
    return said


def test_each_call_in_flight_is_ruled_by_the_policy_it_was_started_with() -> None:
    tale = flying("rerun", "fail", "ask")
    assert words(tale) == [
        ("rerun", "rerun"),
        ("fail", "fail"),
        ("fail", "unknown"),
        ("ask", "asked"),
    ]
    assert [call.call_id for call in ruling.in_flight(tale.state)] == ["rerun", "fail", "ask"]
    tale.rule()
    assert ruling.in_flight(tale.state) == []
    assert words(tale) == []
    assert isinstance(tale.state.next, RunTools)
    assert [call.call_id for call in tale.state.next.calls] == ["rerun"]


def test_a_call_that_failed_by_policy_tells_the_model_that_its_effect_is_unknown() -> None:
    tale = flying("fail")
    tale.rule()
    block = tale.state.messages()[-1]["content"][0]
    assert block["is_error"] is True
    assert block["content"] == ruling.UNKNOWN
    assert owed(tale) == CallModel()


def test_results_answer_their_call_and_hooks_their_hook_call() -> None:
    tale = begun()
    first = tale.add("hook_call", {"hook": "before"})
    tale.add("hook_decision", {"decision": "allow"}, parent=first.seq)
    second = tale.add("hook_call", {"hook": "before"})
    own = tale.call("own", announced_by=None, on_resume="fail")
    tale.resumed()
    assert [found.parent_seq for found in ruling.on_resume(tale.state)] == [
        None,
        own.seq,
        second.seq,
    ]
    tale.rule()
    assert tale.state.hooks == ()
    assert words(tale) == []


def test_calls_of_the_writer_in_force_are_left_alone() -> None:
    tale = begun()
    tale.turn(tool_use("a"))
    tale.call("a", on_resume="fail")
    assert words(tale) == []


def test_calls_that_were_not_started_are_not_ruled() -> None:
    tale = begun()
    tale.turn(tool_use("a"))
    tale.resumed()
    assert words(tale) == []


def test_an_undecided_call_is_never_touched_by_a_recovery() -> None:
    tale = flying("ask")
    tale.rule()
    for _ in range(3):
        tale.resumed()
        assert words(tale) == []
    assert isinstance(tale.state.next, Decide)


def test_a_rerun_that_was_not_started_is_not_ruled_again_and_one_that_died_is() -> None:
    tale = flying("rerun")
    tale.rule()
    tale.resumed()
    assert words(tale) == []
    tale.call("rerun", attempt=2, on_resume="rerun")
    tale.resumed()
    assert words(tale) == [("rerun", "rerun")]


def test_a_ruling_whose_result_was_not_stored_gets_its_result_and_no_second_ruling() -> None:
    tale = flying("fail", "ask")
    made, *_ = ruling.on_resume(tale.state)
    tale.put(made.payload)
    tale.add("decision_requested", {"call": {"call_id": "ask", "announced_by": 4}})
    decided, _ = ruling.on_decision(
        tale.state, CallRef(call_id="ask", announced_by=4), "result", by="eve", output=Raw(b"7")
    )
    tale.put(decided.payload)
    assert owed(tale) == RunTools(())
    tale.resumed()
    found = [each.payload for each in ruling.on_resume(tale.state)]
    assert all(isinstance(each, ToolResult) for each in found)
    assert [
        (each.call_id, each.outcome, each.resolved_by, bytes(each.output)[:1])
        for each in found
        if isinstance(each, ToolResult)
    ] == [("fail", "unknown", "policy", b'"'), ("ask", "ok", "person", b"7")]
    tale.rule()
    assert owed(tale) == CallModel()


def test_calls_whose_arguments_were_cut_are_asked_about_whatever_their_policy() -> None:
    tale = begun()
    tale.turn(tool_use("early"), tool_use("late"), tool_use("whole"), cut=["early", "late"])
    assert isinstance(tale.state.next, RunTools)
    assert [call.call_id for call in tale.state.next.calls] == ["early", "late", "whole"]
    tale.call("late", on_resume="rerun")
    tale.resumed()
    assert isinstance(tale.state.next, RunTools)
    assert [call.call_id for call in tale.state.next.calls] == ["whole"]
    assert words(tale) == [("early", "asked"), ("late", "asked")]
    tale.rule()
    refused, *more = ruling.on_decision(
        tale.state, CallRef(call_id="early", announced_by=4), "rerun", by="eve"
    )
    assert isinstance(refused.payload, DecisionMade)
    assert (refused.payload.ruling, more) == ("refused", [])
    tale.add(
        "decision_made",
        {"call": {"call_id": "early", "announced_by": 4}, "ruling": "rerun", "by": "eve"},
    )
    assert [call.phase for call in tale.state.calls] == ["undecided", "undecided", "announced"]


def test_a_person_rules_once_and_whoever_comes_later_is_refused() -> None:
    tale = flying("ask")
    tale.rule()
    ref = CallRef(call_id="ask", announced_by=4)
    found = ruling.on_decision(
        tale.state, ref, "result", by="eve", output=Raw(b'"sent"'), reason="saw it", inbox=8
    )
    later = ruling.on_decision(tale.state, ref, "rerun", by="bob", inbox=9)
    for each in [*found, *later]:
        tale.put(each.payload, parent=each.parent_seq)
    assert tale.state.messages()[-1]["content"][0]["content"] == "sent"
    assert tale.state.inbox == 9
    assert owed(tale) == CallModel()
    known = tale.state.call(4, "ask")
    assert known is not None
    assert (known.phase, known.by) == ("done", "eve")
    again = ruling.on_decision(tale.state, ref, "rerun", by="bob", inbox=10)
    assert [
        (made.payload.ruling, made.payload.inbox)
        for made in again
        if isinstance(made.payload, DecisionMade)
    ] == [("refused", 10)]


def test_a_person_can_have_a_call_run_again_or_given_up() -> None:
    tale = flying("ask")
    tale.rule()
    ref = CallRef(call_id="ask", announced_by=4)
    [found] = ruling.on_decision(tale.state, ref, "rerun", by="eve")
    tale.put(found.payload)
    assert isinstance(tale.state.next, RunTools)
    assert [(call.call_id, call.attempt) for call in tale.state.next.calls] == [("ask", 2)]
    other = flying("ask")
    other.rule()
    for each in ruling.on_decision(other.state, ref, "fail", by="eve"):
        other.put(each.payload, parent=each.parent_seq)
    assert other.state.messages()[-1]["content"][0]["is_error"] is True
    assert other.state.next == CallModel()


@pytest.mark.parametrize("by", ["eve", "policy"])
def test_nobody_decides_about_a_call_that_runs_in_the_writer_in_force(by: str) -> None:
    tale = begun()
    tale.turn(tool_use("a"))
    tale.call("a")
    ref = CallRef(call_id="a", announced_by=4)
    [found] = ruling.on_decision(tale.state, ref, "rerun", by=by)
    assert isinstance(found.payload, DecisionMade)
    assert found.payload.ruling == "refused"
    tale.put(DecisionMade(call=ref, ruling="rerun", by=by))
    assert owed(tale) == RunTools(())


def test_a_person_cannot_sign_as_the_policy() -> None:
    tale = flying("ask")
    tale.rule()
    [found] = ruling.on_decision(
        tale.state, CallRef(call_id="ask", announced_by=4), "rerun", by=ruling.POLICY
    )
    assert isinstance(found.payload, DecisionMade)
    assert found.payload.by != ruling.POLICY


def test_a_decision_about_a_call_that_nobody_knows_is_refused() -> None:
    [found] = ruling.on_decision(begun().state, CallRef(call_id="x"), "fail", by="eve", inbox=1)
    assert isinstance(found.payload, DecisionMade)
    assert (found.payload.ruling, found.payload.inbox) == ("refused", 1)


@settings(max_examples=150, deadline=None)
@given(tales())
def test_after_a_resume_every_call_in_flight_has_exactly_one_ruling(tale: Tale) -> None:
    tale.resumed()
    flying_now = ruling.in_flight(tale.state)
    found = [each.payload for each in ruling.on_resume(tale.state)]
    rulings = [each.call for each in found if isinstance(each, DecisionMade | DecisionRequested)]
    assert rulings == [call.ref for call in flying_now]
    tale.rule()
    assert ruling.on_resume(tale.state) == []
    assert all(
        call.phase in ("announced", "undecided", "rerun", "done") for call in tale.state.calls
    )


@settings(max_examples=100, deadline=None)
@given(tales())
def test_rulings_that_were_cut_off_anywhere_are_finished_by_the_next_resume(tale: Tale) -> None:
    tale.resumed()
    found = ruling.on_resume(tale.state)
    at = len(tale.events)
    for each in found[: len(found) // 2]:
        tale.put(each.payload, parent=each.parent_seq)
    tale.resumed()
    tale.rule()
    assert ruling.on_resume(tale.state) == []
    ruled = [payloads.decode(e.type, e.raw) for e in tale.events[at:]]
    refs = [e.call for e in ruled if isinstance(e, DecisionMade | DecisionRequested)]
    assert len({(ref.call_id, ref.announced_by) for ref in refs}) == len(refs)
