"""A session as a whole: its turns, tools, tokens, and what is odd about it. Pure."""

from msgspec import Struct
from msgspec.structs import replace

from flightlog import state as sessions
from flightlog.calls import CallState
from flightlog.event import Event
from flightlog.state import ENDED, SessionState
from flightlog.wire import payload as payloads
from flightlog.wire.payload import ToolCall, ToolResult

KEPT = 20  # troubles that are told one by one; the rest is counted

CallKey = tuple[int | None, str]


class Tool(Struct, frozen=True):
    """What became of one tool's calls; `seconds` is the sum of what its results say."""

    calls: int = 0
    ok: int = 0
    error: int = 0
    unknown: int = 0
    cancelled: int = 0
    seconds: float = 0.0

    @property
    def open(self) -> int:
        """Calls without a result."""
        return self.calls - self.ok - self.error - self.unknown - self.cancelled


class Trouble(Struct, frozen=True):
    """An event that says that something went wrong."""

    seq: int
    what: str


class Overview(Struct, frozen=True, kw_only=True):
    """What a session's events up to `state.seq` add up to.

    A turn is one answered main call of the model. `orphans` are results without an open call.
    """

    state: SessionState = SessionState()
    turns: int = 0
    side_calls: int = 0
    side_open: frozenset[int] = frozenset()
    tools: dict[str, Tool] = {}
    open: dict[CallKey, str] = {}
    orphans: tuple[int, ...] = ()
    orphan_count: int = 0
    troubles: tuple[Trouble, ...] = ()
    trouble_count: int = 0


class _Projection:
    """Folds a log into an overview; it is made for one look and never stored."""

    name = "overview"
    version = 1

    def initial(self) -> Overview:
        return Overview()

    def apply(self, state: Overview, event: Event) -> Overview:
        return apply(state, event)

    def encode(self, state: Overview) -> bytes:
        return sessions.encode(state.state)

    def decode(self, raw: bytes) -> Overview:
        return Overview(state=sessions.decode(raw))


OVERVIEW = _Projection()


def apply(seen: Overview, event: Event) -> Overview:
    """The overview after the event."""
    if event.seq <= seen.state.seq:
        return seen
    payload = payloads.decode(event.type, event.raw)
    match payload:
        case payloads.ModelRequest(purpose="side"):
            seen = replace(
                seen, side_calls=seen.side_calls + 1, side_open=seen.side_open | {event.seq}
            )
        case payloads.ModelResponse(error=error):
            seen = _answered(seen, event, error)
        case ToolCall() as call:
            seen = _called(seen, call)
        case ToolResult() as result:
            seen = _finished(seen, result, event)
        case _:
            pass
    return replace(seen, state=sessions.apply(seen.state, event))


def _answered(seen: Overview, event: Event, error: str | None) -> Overview:
    if error is not None:
        seen = _troubled(seen, event.seq, "the model call failed")
    elif event.parent_seq not in seen.side_open:
        seen = replace(seen, turns=seen.turns + 1)
    return replace(seen, side_open=seen.side_open - {event.parent_seq or 0})


def _called(seen: Overview, call: ToolCall) -> Overview:
    key = (call.announced_by, call.call_id)
    if key in seen.open:
        return seen  # another attempt of the same call
    tool = seen.tools.get(call.name, Tool())
    tools = {**seen.tools, call.name: replace(tool, calls=tool.calls + 1)}
    return replace(seen, tools=tools, open={**seen.open, key: call.name})


def _finished(seen: Overview, result: ToolResult, event: Event) -> Overview:
    key = _key(seen, result)
    if key is None:
        orphans = (*seen.orphans, event.seq)[:KEPT]
        return replace(seen, orphans=orphans, orphan_count=seen.orphan_count + 1)
    name = seen.open[key]
    counted = _counted(seen.tools[name], result)
    left = {known: name for known, name in seen.open.items() if known != key}
    seen = replace(seen, tools={**seen.tools, name: counted}, open=left)
    if result.outcome in ("error", "unknown"):
        seen = _troubled(seen, event.seq, f"{name} ended as {result.outcome}")
    return seen


def _key(seen: Overview, result: ToolResult) -> CallKey | None:
    """The open call of a result; one that names no announcement takes the latest of its id."""
    named = (result.announced_by, result.call_id)
    if named in seen.open:
        return named
    same = [key for key in seen.open if key[1] == result.call_id and result.announced_by is None]
    return same[-1] if same else None


def _counted(tool: Tool, result: ToolResult) -> Tool:
    seconds = tool.seconds + (result.duration or 0.0)
    match result.outcome:
        case "ok":
            return replace(tool, ok=tool.ok + 1, seconds=seconds)
        case "error":
            return replace(tool, error=tool.error + 1, seconds=seconds)
        case "unknown":
            return replace(tool, unknown=tool.unknown + 1, seconds=seconds)
        case "cancelled":
            return replace(tool, cancelled=tool.cancelled + 1, seconds=seconds)


def _troubled(seen: Overview, seq: int, what: str) -> Overview:
    troubles = (*seen.troubles, Trouble(seq, what))[-KEPT:]
    return replace(seen, troubles=troubles, trouble_count=seen.trouble_count + 1)


def undecided(state: SessionState) -> list[CallState]:
    """The calls that wait for a person."""
    return [call for call in state.calls if call.phase == "undecided"]


def in_flight(state: SessionState) -> list[CallState]:
    """The calls that were started, or ruled, and have no result, as far as the log knows."""
    return [call for call in state.calls if call.phase in ("running", "ruled", "rerun")]


def abandoned(seen: Overview) -> int:
    """Calls without a result whose session is over, or went on without them."""
    waiting = {(call.announced_by, call.call_id) for call in seen.state.calls}
    over = seen.state.status in ENDED
    return sum(1 for key in seen.open if over or key not in waiting)
