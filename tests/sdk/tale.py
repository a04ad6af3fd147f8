"""Builds the events of a session one by one, and folds them as it goes."""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct

from flightlog import context, event, state
from flightlog.event import Event
from flightlog.running import ruling
from flightlog.state import SessionState
from flightlog.wire import carry
from flightlog.wire import payload as payloads

TS = "2026-05-06T14:23:01.000001Z"


class Tale:
    def __init__(self, session: str = "sess_tale") -> None:
        self.session = session
        self.events: list[Event] = []
        self.state: SessionState = state.initial()

    def add(self, type: str, payload: object, *, parent: int | None = None) -> Event:
        raw = payload if isinstance(payload, Raw) else carry.pack(payload)
        seq = len(self.events) + 1
        made = event.compose(
            session_id=self.session,
            seq=seq,
            type=type,
            payload=raw,
            prev=self.events[-1].digest if self.events else None,
            parent_seq=(seq - 1 or None) if parent is None else parent,
            harness_version="1.0",
            ts=TS,
        )
        self.events.append(made)
        self.state = state.apply(self.state, made)
        return made

    def put(self, payload: Struct, *, parent: int | None = None) -> Event:
        name = payloads.NAMES[type(payload)]  # type: ignore[index]
        return self.add(name, payloads.encode(payload), parent=parent)  # type: ignore[arg-type]

    def started(self, **fields: Any) -> Event:
        return self.add("session_started", {"writer": {"number": 1, "id": "w1"}, **fields})

    def resumed(self) -> Event:
        number = self.state.writer + 1
        return self.add("session_resumed", {"writer": {"number": number, "id": f"w{number}"}})

    def rule(self) -> list[Event]:
        owed = ruling.on_resume(self.state)
        return [self.put(each.payload, parent=each.parent_seq) for each in owed]

    def user(self, content: object, **fields: Any) -> Event:
        return self.add("user_message", {"content": content, **fields})

    def request(self, request: Mapping[str, Any] | None = None, **options: Any) -> Event:
        asked = request or {"model": "m", "messages": self.state.messages()}
        return self.put(context.refer(self.state, asked, **options))

    def response(self, *blocks: object, parent: int | None = None, **fields: Any) -> Event:
        message = {"role": "assistant", "content": list(blocks)}
        asked = self.state.open_request if parent is None else parent
        return self.add("model_response", {"message": message, **fields}, parent=asked)

    def answered(self, message: object, *, parent: int | None = None, **fields: Any) -> Event:
        """A response in the provider's own JSON."""
        asked = self.state.open_request if parent is None else parent
        return self.add("model_response", {"message": message, **fields}, parent=asked)

    def turn(self, *blocks: object, **fields: Any) -> Event:
        self.request()
        return self.response(*blocks, **fields)

    def call(self, call_id: str, *, attempt: int = 1, **fields: Any) -> Event:
        announced_by = fields.pop("announced_by", self.state.last_response)
        known = {"name": "t", "call_id": call_id, "announced_by": announced_by, "attempt": attempt}
        return self.add("tool_call", {**known, **fields})

    def result(self, call_id: str, output: object = "done", **fields: Any) -> Event:
        announced_by = fields.pop("announced_by", self.state.last_response)
        known = {"call_id": call_id, "announced_by": announced_by, "output": output}
        return self.add("tool_result", {**known, **fields})


def begun() -> Tale:
    tale = Tale()
    tale.started()
    tale.user("hello")
    return tale


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def tool_use(call_id: str, name: str = "t", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def function_call(call_id: str, name: str = "t", arguments: object = "{}") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def chat(content: object = None, *calls: object, finish: str = "stop") -> dict[str, Any]:
    """A response of OpenAI's Chat Completions."""
    message = {"role": "assistant", "content": content, "refusal": None, "annotations": []}
    message |= {"tool_calls": list(calls)} if calls else {}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
