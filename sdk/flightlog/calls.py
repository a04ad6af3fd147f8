"""Tool calls, from their announcement to their result, and what stands between the two."""

from typing import Literal

from msgspec import Raw, Struct
from msgspec.structs import replace

from flightlog.wire.payload import (
    NULL,
    CallRef,
    DecisionMade,
    Effect,
    OnResume,
    Outcome,
    ToolCall,
    ToolResult,
)

Phase = Literal["announced", "running", "undecided", "rerun", "ruled", "done"]
Settled = Literal["result", "fail"]


class Ending(Struct, frozen=True):
    """How a call ended, as recorded."""

    outcome: Outcome
    output: Raw


class CallState(Struct, frozen=True):
    """A call and how far it is.

    `seq` is its latest tool_call, or its announcement. Phases: `announced` by a model and not yet
    started; `running`, as far as the log knows; `undecided`, waiting for a person; `rerun`, to be
    started again; `ruled` (`result` or `fail`), its tool_result not yet written; `done`, with
    `result`. `cut`: redaction changed its arguments. `attempt` is the last started, 0 before that.
    """

    call_id: str
    announced_by: int | None
    name: str
    arguments: Raw
    seq: int
    phase: Phase = "announced"
    attempt: int = 0
    on_resume: OnResume = "ask"
    effect: Effect = "write"
    cut: bool = False
    once: str | None = None
    question: str = ""
    ruling: Settled | None = None
    by: str | None = None
    output: Raw = NULL
    result: Ending | None = None

    @property
    def startable(self) -> bool:
        """Whether it may be started now; any other call is waited for, decided or done."""
        return self.phase in ("announced", "rerun")

    @property
    def ref(self) -> CallRef:
        """The call's name in payloads."""
        return CallRef(call_id=self.call_id, announced_by=self.announced_by)


Calls = tuple[CallState, ...]


def find(calls: Calls, announced_by: int | None, call_id: str) -> CallState | None:
    """The call of that name."""
    for call in calls:
        if call.call_id == call_id and call.announced_by == announced_by:
            return call
    return None


def answered(calls: Calls, result: ToolResult, parent_seq: int | None) -> CallState | None:
    """The call that a result is for: by its name, by what it answers, or the last open one."""
    named = find(calls, result.announced_by, result.call_id)
    if named is not None or result.announced_by is not None:
        return named
    same = [call for call in calls if call.call_id == result.call_id]
    parents = [call for call in same if call.seq == parent_seq]
    waiting = [call for call in same if call.phase not in ("announced", "done")]
    return next(iter([*parents, *reversed(waiting)]), None)


def put(calls: Calls, known: CallState | None, call: CallState) -> Calls:
    """With this state of the `known` call; a new one goes to the end."""
    if known is None:
        return (*calls, call)
    return tuple([call if each is known else each for each in calls])


def drop(calls: Calls, known: CallState) -> Calls:
    """Without the call."""
    return tuple([each for each in calls if each is not known])


def started(known: CallState | None, call: ToolCall, seq: int) -> CallState:
    """The call after a tool_call: in flight, unless it is done or waits for a person."""
    if known is not None and known.phase == "done":
        return known
    return CallState(
        call_id=call.call_id,
        announced_by=call.announced_by,
        name=call.name,
        arguments=known.arguments if known and call.arguments == NULL else call.arguments,
        seq=seq,
        phase="undecided" if known and known.phase == "undecided" else "running",
        attempt=call.attempt,
        on_resume=call.on_resume,
        effect=call.effect,
        cut=call.cut or (known is not None and known.cut),
        once=call.once,
        question=known.question if known else "",
    )


def asked(known: CallState | None, ref: CallRef, question: str, seq: int) -> CallState:
    """The call after a decision_requested."""
    call = known or CallState(ref.call_id, ref.announced_by, "", NULL, seq)
    if call.phase in ("done", "ruled"):
        return call
    return replace(call, phase="undecided", question=question)


def decided(known: CallState, made: DecisionMade, *, stale: bool) -> CallState:
    """The call after a decision_made.

    It counts for a call that waits for a person, or, by policy, for one whose process is gone
    (`stale`). A call whose arguments are gone with it is never run again.
    """
    by_policy = known.phase == "running" and made.by == "policy" and stale
    if known.phase != "undecided" and not by_policy:
        return known
    match made.ruling:
        case "rerun" if not (known.cut and stale):
            return replace(known, phase="rerun", by=made.by)
        case "result" | "fail":
            return replace(known, phase="ruled", ruling=made.ruling, by=made.by, output=made.output)
        case _:
            return known


def finished(known: CallState, result: ToolResult) -> CallState:
    """The call after its first tool_result; later ones change nothing."""
    if known.phase == "done":
        return known
    return replace(known, phase="done", result=Ending(result.outcome, result.output), output=NULL)
