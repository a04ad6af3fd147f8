"""Rulings: what becomes of calls whose process is gone, by their policy or by a person."""

from typing import Literal

from msgspec import Raw, Struct

from flightlog import calls as calling
from flightlog.calls import CallState
from flightlog.state import SessionState
from flightlog.wire import carry
from flightlog.wire.payload import (
    NULL,
    CallRef,
    DecisionMade,
    DecisionRequested,
    HookDecision,
    Outcome,
    Ruling,
    ToolResult,
)

POLICY = "policy"  # who decides, in a decision_made that no person made

UNKNOWN = (
    "The process that ran this call ended before its result was recorded. "
    "It is not known whether the call took effect: check before you repeat it."
)
_GONE = "its arguments were redacted and are gone: it cannot be run again"
_CLOSED = "the call was not waiting for a decision"


class Owed(Struct, frozen=True):
    """A payload that is to be appended; `parent_seq` None: it answers the event before it.

    `joined`: stored with the one behind it, so that nobody sees a ruling without its result.
    """

    payload: Struct
    parent_seq: int | None = None
    joined: bool = False


def in_flight(state: SessionState) -> list[CallState]:
    """The calls that an older writer left without a result and that nothing rules yet."""
    return [call for call in state.calls if state.is_stale(call) and _is_open(state, call)]


def on_resume(state: SessionState) -> list[Owed]:
    """Rule what is in flight, once session_resumed is folded in; nothing is run.

    Idempotent: a call that is ruled, or waits for a person, is left alone. A call whose ruling was
    stored without the result that follows from it gets that result.
    """
    owed = [each for call in in_flight(state) for each in _by_policy(state, call)]
    owed += [_settled(call) for call in state.calls if call.phase == "ruled"]
    failed = HookDecision(reason="the process ended before the hook decided", outcome="failed")
    return owed + [Owed(failed, seq) for seq in state.hooks]


def on_decision(
    state: SessionState,
    call: CallRef,
    ruling: Literal["result", "rerun", "fail"],
    *,
    by: str,
    output: Raw = NULL,
    reason: str | None = None,
    inbox: int | None = None,
) -> list[Owed]:
    """Record a person's decision. The first one for a call counts, later ones are refused."""
    known = calling.find(state.calls, call.announced_by, call.call_id)
    refusal = _refusal(state, known, ruling)
    made: Ruling = "refused" if refusal else ruling
    decision = DecisionMade(
        call=call,
        ruling=made,
        by="a person" if by == POLICY else by,
        reason=refusal or reason,
        output=NULL if refusal else output,
        inbox=inbox,
    )
    if refusal or ruling == "rerun" or known is None:
        return [Owed(decision)]
    ended = _result(known, ruling, output, by="person")
    return [Owed(decision, joined=True), Owed(ended, known.seq)]


def _refusal(state: SessionState, call: CallState | None, ruling: str) -> str | None:
    if call is None or call.phase != "undecided":
        return _CLOSED
    if ruling != "rerun":
        return None
    if call.cut and state.is_stale(call):
        return _GONE
    lost = state.loss(call)
    return None if lost is None else f"it cannot be run again: {lost}"


def _is_open(state: SessionState, call: CallState) -> bool:
    if call.phase == "running":
        return True
    return call.startable and (call.cut or state.loss(call) is not None)


def _by_policy(state: SessionState, call: CallState) -> list[Owed]:
    lost = state.loss(call)
    policy = "ask" if call.cut or lost is not None else call.on_resume
    if policy == "ask":
        return [Owed(DecisionRequested(call=call.ref, question=_question(call, lost)))]
    if policy == "rerun":
        return [Owed(DecisionMade(call=call.ref, ruling="rerun", by=POLICY))]
    made = DecisionMade(call=call.ref, ruling="fail", by=POLICY)
    return [Owed(made, joined=True), Owed(_result(call, "fail", NULL, by="policy"), call.seq)]


def _settled(call: CallState) -> Owed:
    by: Literal["policy", "person"] = "policy" if call.by == POLICY else "person"
    return Owed(_result(call, call.ruling or "fail", call.output, by=by), call.seq)


def _result(
    call: CallState, ruling: str, output: Raw, *, by: Literal["policy", "person"]
) -> ToolResult:
    failed = ruling == "fail"
    outcome: Outcome = "unknown" if failed else "ok"
    said = carry.pack(UNKNOWN) if failed and output == NULL else output
    return ToolResult(
        call_id=call.call_id,
        announced_by=call.announced_by,
        outcome=outcome,
        output=said,
        resolved_by=by,
    )


def _question(call: CallState, lost: str | None) -> str:
    why = "" if lost is None else f" ({lost})"
    if not call.attempt and (call.cut or lost is not None):
        gone = "its redacted arguments are gone" if call.cut else "its arguments are lost"
        return f"{call.name} was not started, and {gone}: what is its result?{why}"
    asked = f"{call.name} (attempt {call.attempt}) has no recorded result: did it take effect?"
    return asked + why
