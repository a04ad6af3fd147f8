"""Anthropic's Messages format: what a message asks for, and how a context is written in it."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from flightlog import carry
from flightlog.carry import MARK
from flightlog.segment import Answer, Entry, Results, Said, Sent, Slot

VIEW = "anthropic/1"  # the rules below; a model_request names those that its context follows

PENDING = "This call has no result yet."
NOTICE = b'{"role":"user","content":"The beginning of this conversation is not recorded."}'

_WITHOUT_TEXT = {
    "error": "The tool failed without a message.",
    "unknown": "It is not known whether this call took effect.",
    "cancelled": "The call was cancelled; it may have taken effect all the same.",
}
_RESULT_BLOCKS = frozenset({"text", "image", "document", "search_result"})
_SIGNED = frozenset({"thinking", "redacted_thinking"})
# A user_message answers no call: results come as tool_result events.
_NOT_A_USERS = frozenset({"tool_use", "tool_result"}) | _SIGNED
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_EMPTY = Raw(b"{}")


class Announced(Struct, frozen=True):
    """A call that a message asks the client to run; `input` is a value, or `Raw`."""

    call_id: str
    name: str
    input: Any


class Facts(Struct, frozen=True):
    """The usage that a message reports (null without one) and its stop reason."""

    usage: Raw
    stop: str | None


class Reply(Struct, frozen=True):
    """What of a message decides how the loop goes on."""

    calls: tuple[Announced, ...] = ()
    stop: str | None = None


class _Block(Struct):
    type: object = None
    id: object = None
    name: object = None
    input: Raw = _EMPTY


class _Message(Struct):
    content: list[_Block] | str | None = None
    stop_reason: object = None


_message = msgspec.json.Decoder(_Message)
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def reply(message: Raw) -> Reply:
    """The calls of a message (server tools are the provider's own) and its stop reason.

    A call id that the message repeats gets a number behind it, so that both calls run and each has
    its own result; `line` writes the same ids.
    """
    try:
        found = _message.decode(message)
    except _UNREADABLE:
        found = _salvaged(message)
    blocks = found.content if isinstance(found.content, list) else []
    asked = [block for block in blocks if block.type == "tool_use" and _is_named(block)]
    stop = found.stop_reason if isinstance(found.stop_reason, str) else None
    if not asked:
        return Reply((), stop)
    ids = unique([str(block.id) for block in asked])
    named = zip(ids, asked, strict=True)
    return Reply(tuple([Announced(id_, str(b.name), b.input) for id_, b in named]), stop)


def _is_named(block: "_Block") -> bool:
    return _is_name(block.id) and _is_name(block.name)


def _is_name(text: object) -> bool:
    return isinstance(text, str) and text != ""


def calls(message: Any) -> list[Announced]:
    """The calls that a message, given as a value, announces."""
    found = reply(carry.pack(message, where="message")).calls
    return [Announced(call.call_id, call.name, carry.unpack(call.input)) for call in found]


def read_response(message: Any) -> Facts:
    """What a model_response says beside the message, given as a value."""
    found = message if isinstance(message, dict) else {}
    stop = found.get("stop_reason")
    usage = carry.pack(found.get("usage"), where="usage")
    return Facts(usage, stop if isinstance(stop, str) else None)


def unique(ids: Sequence[str]) -> list[str]:
    """The ids, each repeat with the first number behind it that makes it new."""
    if len(set(ids)) == len(ids):
        return list(ids)
    taken, found = set(ids), list[str]()
    for at, call_id in enumerate(ids):
        number, new = 2, call_id
        while new in (taken if call_id in ids[:at] else ()):
            new, number = f"{call_id}-{number}", number + 1
        taken.add(new)
        found.append(new)
    return found


def says_something(content: Raw) -> bool:
    """Whether a user's content may be sent: the provider refuses empty text."""
    found = bytes(content)
    if found[:1] == b'"' and found[1:2].isalnum():  # nearly all there is
        return True
    return line(Said(0, content)) is not None


def line(entry: Entry) -> bytes | None:
    """The entry as one message, in JSON; None for one that a request may not hold."""
    try:
        match entry:
            case Sent():
                return _encode(_decode(entry.message))
            case Said():
                return _written("user", _said(_decode(entry.content)))
            case Answer():
                return _written("assistant", _answered(_decode(entry.message)))
            case Results():
                return _written("user", [_result(slot) for slot in entry.slots])
    except _UNREADABLE:
        return None


def _written(role: str, content: Any) -> bytes | None:
    return _encode({"role": role, "content": content}) if content else None


def _said(content: Any) -> Any:
    match content:
        case str():
            return content if content.strip() else None
        case list():
            return [b for b in content if _sendable(b) and b["type"] not in _NOT_A_USERS]
        case None:
            return None
        case {"$flightlog": "str"}:
            return content
        case _:
            return _encode(content).decode()


def _answered(message: Any) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        is_text = isinstance(content, str) or (isinstance(content, dict) and MARK in content)
        return _said(content) if is_text else None
    blocks = _runnable([b for b in content if _sendable(b) and b["type"] != "tool_result"])
    while blocks and blocks[-1].get("type") in _SIGNED:  # refused as a message's last block
        blocks.pop()
    return blocks


def _runnable(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks without the calls that cannot be named, the others under their unique ids."""
    asked = [b for b in blocks if b.get("type") == "tool_use"]
    good = [b for b in asked if _is_name(b.get("id")) and _is_name(b.get("name"))]
    ids = iter(unique([b["id"] for b in good]))
    named = {id(b): _named(b, next(ids)) for b in good}
    return [named.get(id(b), b) for b in blocks if b.get("type") != "tool_use" or id(b) in named]


def _named(block: dict[str, Any], call_id: str) -> dict[str, Any]:
    arguments = block.get("input")
    if block["id"] == call_id and isinstance(arguments, dict):
        return block
    return {**block, "id": call_id, "input": arguments if isinstance(arguments, dict) else {}}


def _sendable(block: object) -> bool:
    """Whether it is a block with a type, and no empty text."""
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return False
    text = block.get("text")
    if block["type"] != "text":
        return True
    return bool(text.strip()) if isinstance(text, str) else isinstance(text, dict) and MARK in text


def _result(slot: Slot) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": slot.call_id}
    if slot.outcome is None:
        return {**block, "content": PENDING}
    content = _output(slot.output)
    if slot.outcome == "ok":
        return {**block, "content": content} if content else block
    return {**block, "content": content or _WITHOUT_TEXT[slot.outcome], "is_error": True}


def _output(raw: Raw) -> str | list[Any] | None:
    value = _decode(raw)
    match value:
        case None:
            return None
        case str():
            return value if value.strip() else None
        case [*blocks] if blocks and _are_blocks(blocks):
            return [block for block in blocks if _sendable(block)]
        case _:
            return _encode(value).decode()


def _are_blocks(blocks: Iterable[Any]) -> bool:
    return all(isinstance(b, dict) and b.get("type") in _RESULT_BLOCKS for b in blocks)


def _salvaged(message: Raw) -> _Message:
    """What can be read of a message whose content is not what the provider writes."""
    try:
        found = _decode(message)
    except _UNREADABLE:
        return _Message()
    if not isinstance(found, dict):
        return _Message()
    content = found.get("content")
    blocks = content if isinstance(content, list) else []
    return _Message([_block(b) for b in blocks if isinstance(b, dict)], found.get("stop_reason"))


def _block(found: dict[str, Any]) -> _Block:
    arguments = Raw(_encode(found.get("input", {})))
    return _Block(found.get("type"), found.get("id"), found.get("name"), arguments)
