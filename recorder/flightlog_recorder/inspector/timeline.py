"""Events as rows of a timeline: turns, lanes of what runs at the same time, durations, marks. Pure.

A row's `lanes` has a letter for each lane: `s` something starts in it, `e` it ends, `l` it goes on,
`.` the lane is free.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from msgspec import Struct

from flightlog.event import Event
from flightlog.wire import payload as payloads
from flightlog.wire.payload import ToolCall, ToolResult
from flightlog_recorder.inspect.telling import tell
from flightlog_recorder.replay import choice

LANES = 12  # side by side; what runs beyond them has none

Kind = Literal["user", "model", "tool", "hook", "decision", "context", "life", "note"]
Key = tuple[int | None, str]

KINDS: dict[str, Kind] = {
    "user_message": "user",
    "model_messages": "model",
    "model_request": "model",
    "model_response": "model",
    "tool_call": "tool",
    "tool_result": "tool",
    "hook_call": "hook",
    "hook_decision": "hook",
    "decision_requested": "decision",
    "decision_made": "decision",
    "inbox_refused": "decision",
    "compact": "context",
    "rewind": "context",
    "checkpoint": "context",
    "value_recorded": "note",
}
MARKS = {
    "compact": "compaction",
    "rewind": "rewind",
    "checkpoint": "checkpoint",
    "session_started": "start",
    "session_reopened": "reopened",
    "session_suspended": "suspended",
    "session_ended": "end",
    "session_forked": "fork",
    "session_imported": "import",
    "decision_requested": "asks",
}
LEFT = frozenset({"session_suspended", "session_ended", "session_forked", "session_imported"})
TURNS = frozenset({"user_message"})


class Row(Struct, frozen=True, omit_defaults=True):
    """One event as the timeline shows it. `took` is in seconds; `partner` is the other end of it.

    `crash` marks a resume that no suspend came before: the process before it died.
    """

    seq: int
    ts: str
    type: str
    kind: Kind
    text: str
    size: int
    mark: str | None = None
    error: bool = False
    turn: bool = False
    lanes: str = ""
    lane: int | None = None
    took: float | None = None
    partner: int | None = None
    effect: bool = False


class _Open(Struct, frozen=True):
    seq: int
    ts: str
    lane: int | None


def rows(events: Iterable[Event], *, first: int = 1) -> list[Row]:
    """The rows from seq `first` on; the events before it tell what was under way."""
    drawing, found = _Drawing(), list[Row]()
    for event in events:
        row = drawing.row(event)
        if event.seq >= first:
            found.append(row)
    return found


class _Drawing:
    """What is under way at one place of the timeline."""

    def __init__(self) -> None:
        self._tools: dict[Key, _Open] = {}
        self._asked: dict[int, _Open] = {}
        self._lanes: dict[int, object] = {}
        self._before: Event | None = None

    def row(self, event: Event) -> Row:
        """The event's row; what it starts or ends is known from here on."""
        if event.type in ("session_resumed", "session_reopened"):
            self._let_go()
        running = set(self._lanes)
        said = payloads.decode(event.type, event.raw)
        lane, began, ended = self._placed(event, said)
        row = Row(
            seq=event.seq,
            ts=event.ts,
            type=event.type,
            kind=_kind(event.type),
            text=tell(event),
            size=len(event.body),
            mark=self._mark(event),
            error=choice.is_error(event),
            turn=event.type in TURNS,
            lanes=_drawn(running, lane, starts=began is None and lane is not None, ends=ended),
            lane=lane,
            took=_took(event, said, began),
            partner=began.seq if began else None,
            effect=isinstance(said, ToolCall) and said.effect != "read",
        )
        self._before = event
        return row

    def _placed(
        self, event: Event, said: payloads.Payload
    ) -> tuple[int | None, _Open | None, bool]:
        """The event's lane, what it ends, and whether it ends something."""
        match said:
            case payloads.ModelRequest():
                lane = self._start(event)
                self._asked[event.seq] = _Open(event.seq, event.ts, lane)
                return lane, None, False
            case payloads.ModelResponse():
                return self._end(self._asked.pop(event.parent_seq or 0, None))
            case ToolCall() as call:
                key = (call.announced_by, call.call_id)
                again = self._tools.get(key)
                lane = again.lane if again else self._start(event)
                self._tools[key] = _Open(event.seq, event.ts, lane)
                return lane, None, False
            case ToolResult() as result:
                return self._end(self._answered(result))
            case _:
                return None, None, False

    def _start(self, event: Event) -> int | None:
        free = next((lane for lane in range(LANES) if lane not in self._lanes), None)
        if free is not None:
            self._lanes[free] = event.seq
        return free

    def _end(self, began: _Open | None) -> tuple[int | None, _Open | None, bool]:
        if began is None or began.lane is None:
            return None, began, began is not None
        self._lanes.pop(began.lane, None)
        return began.lane, began, True

    def _answered(self, result: ToolResult) -> _Open | None:
        named = self._tools.pop((result.announced_by, result.call_id), None)
        if named is not None or result.announced_by is not None:
            return named
        same = [key for key in self._tools if key[1] == result.call_id]
        return self._tools.pop(same[-1]) if same else None

    def _let_go(self) -> None:
        """Another process writes now: the model call of the one before it is made again."""
        for began in self._asked.values():
            if began.lane is not None:
                self._lanes.pop(began.lane, None)
        self._asked.clear()

    def _mark(self, event: Event) -> str | None:
        if event.type == "session_resumed":
            before = self._before
            died = before is not None and before.type not in LEFT
            return "crash" if died else "resumed"
        return MARKS.get(event.type)


def _kind(type: str) -> Kind:
    return "life" if type.startswith("session_") else KINDS.get(type, "note")


def _drawn(running: set[int], lane: int | None, *, starts: bool, ends: bool) -> str:
    letters = dict.fromkeys(running, "l")
    if lane is not None:
        letters[lane] = ("l" if lane in running else "s") if starts else "e" if ends else "l"
    return "".join(letters.get(at, ".") for at in range(max(letters, default=-1) + 1))


def _took(event: Event, said: payloads.Payload, began: _Open | None) -> float | None:
    if isinstance(said, ToolResult) and said.duration is not None:
        return said.duration
    if began is None:
        return None
    try:
        passed = datetime.fromisoformat(event.ts) - datetime.fromisoformat(began.ts)
    except (ValueError, TypeError):
        return None
    return max(0.0, passed.total_seconds())
