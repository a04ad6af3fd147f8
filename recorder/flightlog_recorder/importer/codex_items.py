"""The records of a Codex rollout: what they are, and what they say in Chat Completions' format.

A conversion keeps what it was made from: either it can be undone, or the original stands beside it.
"""

import json
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from flightlog.messages import turn
from flightlog.messages.provider import MOST_NAME, fitting
from flightlog_recorder.importer.drafts import place
from flightlog_recorder.importer.source import MAX_DEPTH, Record, plain
from flightlog_recorder.importer.walk import Unfit

ENVELOPES = frozenset(
    {
        "compacted",
        "event_msg",
        "inter_agent_communication",
        "inter_agent_communication_metadata",
        "response_item",
        "security_risk_score",
        "session_meta",
        "turn_context",
        "world_state",
    }
)
CALLS = frozenset({"custom_tool_call", "function_call", "local_shell_call", "tool_search_call"})
RESULTS = frozenset({"custom_tool_call_output", "function_call_output", "tool_search_output"})
OWN = frozenset({"image_generation_call", "reasoning", "web_search_call"})  # only the provider's
SILENT = frozenset({"compaction", "context_compaction", "ghost_snapshot"})
ITEMS = CALLS | RESULTS | OWN | SILENT | {"agent_message", "message"}
# Codex puts these into the conversation in the user's name; a turn does not begin with one.
INJECTED = (
    "# AGENTS.md instructions for ",
    "<environment_context>",
    "<goal_context>",
    "<skill>",
    "<subagent_notification>",
    "<turn_aborted>",
    "<user_instructions>",
    "<user_shell_command>",
)
LEFT_OUT = "[left out here: compaction]"

Message = dict[str, Any]
Origin = Literal["human", "peer", "system"]


class Item(msgspec.Struct, frozen=True):
    """A record as one of Codex's: `body` is what it says, `envelope` and `kind` what it is."""

    record: Record
    envelope: str
    kind: str
    body: dict[str, Any]
    outside: dict[str, Any]

    @property
    def name(self) -> str:
        """What it is, in one word."""
        return f"{self.envelope}/{self.kind}" if self.kind else self.envelope


class Call(msgspec.Struct, frozen=True):
    """A call as its event has it, and as a chat message does."""

    call_id: str
    name: str | None
    arguments: Any
    written: Message


def item_of(record: Record) -> Item:
    """What a record is. Before September 2025 lines had no envelope."""
    fields = record.fields
    match fields:
        case {"type": str(envelope), "payload": dict(body)} if envelope in ENVELOPES:
            inner = body.get("type") if envelope in ("response_item", "event_msg") else None
            outside = {k: v for k, v in fields.items() if k != "payload"}
            return Item(record, envelope, plain(inner) or "", body, outside)
        case {"type": str(kind)} if kind in ITEMS:
            return Item(record, "response_item", kind, fields, {})
        case {"record_type": str()}:
            return Item(record, "record_type", plain(fields["record_type"]) or "", fields, {})
        case {"type": str(other)}:
            return Item(record, "" if other in ENVELOPES else plain(other) or "", "", {}, fields)
        case {"role": "user" | "assistant", "content": str()}:
            return Item(record, "response_item", "message", fields, {})
        case {"role": "user" | "assistant", "message": str(said)}:
            body = {**fields, "content": said}
            return Item(record, "response_item", "message", body, {})
        case {"id": str(), "timestamp": str(), "instructions": _}:
            return Item(record, "session_meta", "", fields, {})
        case _:
            return Item(record, "", "", {}, fields)


def is_known(item: Item) -> bool:
    """Whether Codex writes such records."""
    return item.envelope in ENVELOPES or item.envelope == "record_type"


def is_codex(item: Item) -> bool:
    """Whether nobody else writes such records."""
    return is_known(item) and (bool(item.outside) or "role" not in item.body or "type" in item.body)


def call_id(item: Item) -> object:
    """What a call or a result is paired by; the first local shells had an id alone."""
    body = item.body
    return body.get("call_id") or (body.get("id") if item.kind == "local_shell_call" else None)


def source(item: Item, *taken: str) -> dict[str, Any]:
    """Where the item stands, and all of its fields but those that the payload has taken."""
    rest = {name: value for name, value in item.body.items() if name not in taken}
    return {**place(item.record), "record": item.outside, "item": rest}


def is_server_side(item: Item) -> bool:
    """Whether the provider itself searched for tools: nobody else is to answer."""
    if item.kind not in ("tool_search_call", "tool_search_output"):
        return False
    return item.body.get("execution") == "server" or item.body.get("call_id") is None


def role(body: dict[str, Any]) -> str:
    """Who speaks in a message."""
    if (found := plain(body.get("role"))) is None:
        raise Unfit("its role cannot be read")
    return found


def content(body: dict[str, Any]) -> str | list[Message]:
    """A message's content in chat format: a single text as text, what chat has not by its name."""
    found = body.get("content")
    if isinstance(found, str):
        return found
    if not isinstance(found, list) or not all(isinstance(block, dict) for block in found):
        raise Unfit("its content cannot be read")
    blocks = [block_of(block) for block in found]
    if len(blocks) == 1 and set(blocks[0]) == {"type", "text"} and blocks[0]["type"] == "text":
        return str(blocks[0]["text"])
    return blocks


def block_of(block: Message) -> Message:
    """A content block in chat format; `is_kept` says whether nothing is lost by it."""
    match block:
        case {"type": "input_text" | "output_text", "text": str(text)} if len(block) == 2:
            return {"type": "text", "text": text}
        case {"type": "input_image", "image_url": str(url), **rest} if not rest.keys() - {"detail"}:
            return {"type": "image_url", "image_url": {"url": url, **rest}}
        case {"type": str()}:
            return {"type": "text", "text": turn.words(turn.of_block(block))}
        case _:
            return {"type": "text", "text": turn.words(turn.Opaque("a block without a type"))}


def is_kept(value: object) -> bool:
    """Whether a content's form in chat format holds all that it says."""
    match value:
        case {"type": "input_text" | "output_text", "text": str(), **rest} if not rest:
            return True
        case {"type": "input_image", "image_url": str(), **rest} if not rest.keys() - {"detail"}:
            return True
        case list():
            return all(isinstance(block, dict) and is_kept(block) for block in value)
        case _:
            return not isinstance(value, dict)


def texts(value: object) -> list[str]:
    """The words in a content or a summary, block by block."""
    blocks = value if isinstance(value, list) else [value]
    found = [block.get("text") if isinstance(block, dict) else block for block in blocks]
    return [text for text in found if isinstance(text, str) and text.strip()]


def origin(body: dict[str, Any]) -> Origin:
    """Who said it: a person, unless Codex put it there."""
    if body.get("role") != "user":
        return "system"
    said = texts(body.get("content"))
    return "system" if any(text.lstrip().startswith(INJECTED) for text in said) else "human"


def call_of(item: Item) -> Call:
    """The call that an item asks for."""
    body, found = item.body, call_id(item)
    named = plain(found or f"import_{item.record.line}_{item.record.index}")
    if named is None:
        raise Unfit("a tool call has an id that is no text")
    name = _name(item)
    shown = fitting(name or "unnamed", most=MOST_NAME)
    if item.kind == "custom_tool_call":
        given = body.get("input")
        custom = {"name": shown, "input": given if isinstance(given, str) else json_text(given)}
        return Call(named, name, given, {"id": named, "type": "custom", "custom": custom})
    given = body.get("action" if item.kind == "local_shell_call" else "arguments")
    function = {"name": shown, "arguments": given if isinstance(given, str) else json_text(given)}
    written = {"id": named, "type": "function", "function": function}
    return Call(named, name, _value(given), written)


def _name(item: Item) -> str | None:
    if item.kind in ("local_shell_call", "tool_search_call"):
        return item.kind.removesuffix("_call")
    name, space = plain(item.body.get("name")), plain(item.body.get("namespace"))
    if not name or not space:
        return name or None
    return f"{space}{name}" if space.endswith("__") else f"{space}__{name}"


def _value(given: Any) -> Any:
    """What arguments say, where they are the JSON text of something."""
    if not isinstance(given, str) or given.count("[") + given.count("{") > MAX_DEPTH:
        return given
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        return given


def json_text(value: Any) -> str:
    """A value as JSON text; nothing as an empty object."""
    return json.dumps({} if value is None else value, separators=(",", ":"), allow_nan=True)


class Spoken:
    """What a model says in one go, as one chat message."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._calls: list[Message] = []

    def __bool__(self) -> bool:
        return bool(self._texts or self._calls)

    def say(self, body: dict[str, Any]) -> None:
        """Add the words of a message; what else there is has no place in the format."""
        self._texts += texts(body.get("content"))

    def ask(self, call: Call) -> None:
        """Add a call."""
        self._calls.append(call.written)

    def message(self) -> Message:
        """The message so far; what only its provider can read is not in it."""
        several = [{"type": "text", "text": text} for text in self._texts]
        words = self._texts[0] if len(self._texts) == 1 else several or None
        calls = {"tool_calls": self._calls} if self._calls else {}
        return {"role": "assistant", "content": words, **calls}


def history(items: Iterable[Item]) -> list[tuple[Message, bool]]:
    """What a compaction left, as chat messages, and whether a turn begins with each."""
    found, spoken = list[tuple[Message, bool]](), Spoken()
    for item in items:
        if item.kind == "message" and item.body.get("role") == "assistant":
            spoken.say(item.body)
        elif item.kind in CALLS and not is_server_side(item):
            spoken.ask(call_of(item))
        elif message := _heard(item):
            found += [(spoken.message(), False)] if spoken else []
            found.append((message, is_turn(item)))
            spoken = Spoken()
    return [*found, (spoken.message(), False)] if spoken else found


def _heard(item: Item) -> Message | None:
    """What the model is told: always in the user's name, as a session begins with no system."""
    match item.kind:
        case "message" | "agent_message":
            said = content(item.body)
            return {"role": "user", "content": said} if said else None
        case "compaction" | "context_compaction":
            return {"role": "user", "content": LEFT_OUT}
        case kind if kind in RESULTS and not is_server_side(item):
            answered = plain(call_id(item)) or ""
            given = item.body.get("output", item.body.get("tools"))
            told = given if isinstance(given, str) else json_text(given)
            return {"role": "tool", "tool_call_id": answered, "content": told}
        case _:
            return None


def is_turn(item: Item) -> bool:
    """Whether a turn of the user's begins with the item."""
    spoken = item.kind == "message" and origin(item.body) == "human"
    return spoken or item.kind == "agent_message"
