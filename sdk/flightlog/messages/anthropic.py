"""Anthropic's Messages format: what a message asks for, and how a context is written in it."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from flightlog.messages import turn
from flightlog.messages.provider import (
    Announced,
    Facts,
    Reply,
    Shown,
    is_name,
    unique,
)
from flightlog.messages.segment import Answer, Entry, Results, Said, Sent, Slot
from flightlog.messages.turn import Asked, Content, Given, Image, Opaque, Part, Text, Turn
from flightlog.wire import carry

NAME: str = "anthropic"
VIEW: str = "anthropic/1"
LEADS: frozenset[str] = frozenset()  # a system prompt is a field of the request

NOTICE = b'{"role":"user","content":"The beginning of this conversation is not recorded."}'

_RESULT_BLOCKS = frozenset({"text", "image", "document", "search_result"})
_OTHERS = frozenset(  # content blocks of other providers
    {"image_url", "input_audio", "file", "refusal", "input_text", "output_text"}
)
_SIGNED = frozenset({"thinking", "redacted_thinking"})
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_EMPTY = Raw(b"{}")


class _Block(Struct):
    type: object = None
    id: object = None
    name: object = None
    input: Raw = _EMPTY


class _Message(Struct):
    content: list[_Block] | str | None = None
    stop_reason: object = None


class _Role(Struct):
    role: object = None


_message = msgspec.json.Decoder(_Message)
_role = msgspec.json.Decoder(_Role)
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def reply(message: Raw) -> Reply:
    """The calls of a message (server tools are the provider's own) and its stop reason.

    A call id that the message repeats gets a number behind it, so that both calls run and each has
    its own result; `native` writes the same ids.
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


def _is_named(block: _Block) -> bool:
    return is_name(block.id) and is_name(block.name)


def read_response(message: Any) -> Facts:
    """What a model_response says beside the message, given as a value."""
    found = message if isinstance(message, dict) else {}
    stop = found.get("stop_reason")
    usage = carry.pack(found.get("usage"), where="usage")
    return Facts(usage, stop if isinstance(stop, str) else None)


def native(entry: Entry) -> Shown:
    """The entry as one message; as none when a request may not hold it."""
    try:
        match entry:
            case Sent():
                return _sent(carry.shown(entry.message))
            case Said():
                return _written("user", _said(carry.shown(entry.content)))
            case Answer():
                return answer(carry.shown(entry.message))
            case Results():
                return _written("user", [_result(slot) for slot in entry.slots])
    except _UNREADABLE:
        return Shown()


def says_something(content: Raw) -> bool:
    """Whether a user's content may be sent: the provider refuses empty text."""
    found = bytes(content)
    if found[:1] == b'"' and found[1:2].isalnum():  # nearly all there is
        return True
    return bool(native(Said(0, content)).messages)


def answer(message: Any) -> Shown:
    """A response, given as a value, as a request takes it."""
    content = message.get("content") if isinstance(message, dict) else None
    if turn.are_words(content):
        return Shown(({"role": "assistant", "content": content},), words=True)
    return _written("assistant", _answered(message))


def _written(role: str, content: Any) -> Shown:
    return _shown({"role": role, "content": content})


def _shown(message: dict[str, Any]) -> Shown:
    content = message["content"]
    if not content:
        return Shown()
    blocks = content if isinstance(content, list) else []
    asks = tuple([b["id"] for b in blocks if b["type"] == "tool_use"])
    gives = tuple([b["tool_use_id"] for b in blocks if b["type"] == "tool_result"])
    return Shown((message,), asks, gives)


def _sent(message: Any) -> Shown:
    """A message as it was sent, without what the provider would refuse."""
    match message:
        case [*several]:
            found = [_sent(each) for each in several]
            if any(each.asks or not each.gives for each in found):
                return Shown()
            gives = tuple([call_id for each in found for call_id in each.gives])
            return Shown(tuple([m for each in found for m in each.messages]), (), gives)
        case {"role": "assistant"}:
            return _shown({**message, "content": _answered(message)})
        case {"role": "user"}:
            return _shown({**message, "content": _heard(message.get("content"))})
        case {"role": "system" | "developer", "content": content}:  # meant for another provider
            return _written("user", _said(content))
        case _:
            return Shown()


def _said(content: Any) -> Any:
    match content:
        case str():
            return content if content.strip() else None
        case list():
            found = [b for b in content if _sendable(b) and b["type"] not in turn.NOT_SAID]
            return [_own(block) for block in found]
        case None:
            return None
        case _:
            return turn.json_text(content)


def _heard(content: Any) -> Any:
    """A user's message with its results, which must come first."""
    if not isinstance(content, list):
        return _said(content)
    results = [b for b in content if _sendable(b) and b["type"] == "tool_result"]
    return [b for b in results if is_name(b.get("tool_use_id"))] + _said(content)


def _own(block: dict[str, Any]) -> dict[str, Any]:
    return _block(turn.of_block(block)) if block["type"] in _OTHERS else block


def _answered(message: Any) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return _said(content) if isinstance(content, str) else None
    blocks = [b for b in content if _sendable(b) and b["type"] != "tool_result"]
    if any(b["type"] == "tool_use" for b in blocks):
        blocks = _runnable(blocks)
    while blocks and blocks[-1].get("type") in _SIGNED:  # refused as a message's last block
        blocks.pop()
    return blocks


def _runnable(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks without the calls that cannot be named, the others under their unique ids."""
    asked = [b for b in blocks if b.get("type") == "tool_use"]
    good = [b for b in asked if is_name(b.get("id")) and is_name(b.get("name"))]
    ids = iter(unique([b["id"] for b in good]))
    named = {id(b): _named(b, next(ids)) for b in good}
    return [named.get(id(b), b) for b in blocks if b.get("type") != "tool_use" or id(b) in named]


def _named(block: dict[str, Any], call_id: str) -> dict[str, Any]:
    arguments = block.get("input")
    whole = turn.is_object(arguments)
    if block["id"] == call_id and whole:
        return block
    return {**block, "id": call_id, "input": arguments if whole else {}}


def _sendable(block: object) -> bool:
    """Whether it is a block with a type, and no empty text."""
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return False
    text = block.get("text")
    return block["type"] != "text" or (isinstance(text, str) and bool(text.strip()))


def _result(slot: Slot) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": slot.call_id}
    if slot.outcome is None:
        return {**block, "content": turn.PENDING}
    content = _output(slot.output)
    if slot.outcome == "ok":
        return {**block, "content": content} if content else block
    return {**block, "content": content or turn.without_text(slot.outcome), "is_error": True}


def _output(raw: Raw) -> str | list[Any] | None:
    value = carry.shown(raw)
    match value:
        case None:
            return None
        case str():
            return value if value.strip() else None
        case [*blocks] if blocks and _are_blocks(blocks):
            return [_own(block) for block in blocks if _sendable(block)]
        case _:
            return turn.json_text(value)


def _are_blocks(blocks: Iterable[Any]) -> bool:
    known = _RESULT_BLOCKS | _OTHERS
    return all(isinstance(b, dict) and b.get("type") in known for b in blocks)


def read(message: Raw) -> Turn | None:
    """What the message says; None for one that says nothing."""
    found = turn.decoded(message)
    if isinstance(found, list):
        parts = [part for each in found for part in _parts(each)]
        return Turn("user", tuple(parts)) if parts else None
    parts = _parts(found)
    by_user = isinstance(found, dict) and found.get("role", "assistant") != "assistant"
    return Turn("user" if by_user else "assistant", tuple(parts)) if parts else None


def _parts(message: Any) -> list[Part]:
    by_user = isinstance(message, dict) and message.get("role") == "user"
    content = _heard(message.get("content")) if by_user else _answered(message)
    match content:
        case str():
            return [Text(content)]
        case list():
            return [_part(block) for block in content]
        case _:
            return []


def _part(block: dict[str, Any]) -> Part:
    match block:
        case {"type": "tool_use", "id": str(call_id), "name": str(name), "input": arguments}:
            return Asked(call_id, name, arguments)
        case {"type": "tool_result", "tool_use_id": str(call_id)}:
            said = turn.content(block.get("content"))
            return Given(call_id, said, failed=block.get("is_error") is True)
        case _:
            return turn.of_block(block)


def write(said: Turn) -> Shown:
    """Another provider's message: words, pictures, calls and results; no reasoning."""
    if said.role == "assistant":
        return _written("assistant", [_asked(p) for p in said.parts if isinstance(p, Text | Asked)])
    given = [_given(part) for part in said.parts if isinstance(part, Given)]
    rest = [part for part in said.parts if isinstance(part, Text | Image | Opaque)]
    if not given and len(rest) == 1 and isinstance(rest[0], Text):
        return _written("user", rest[0].text)
    return _written("user", given + [_block(part) for part in rest])


def _asked(part: Text | Asked) -> dict[str, Any]:
    if isinstance(part, Text):
        return _block(part)
    whole = turn.is_object(part.arguments)
    arguments = part.arguments if whole else {"arguments": part.arguments}
    return {"type": "tool_use", "id": part.call_id, "name": part.name, "input": arguments}


def _given(part: Given) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": part.call_id}
    match part.parts:
        case ():
            return block
        case (Text(text),):
            content: Any = text
        case _:
            content = [_block(each) for each in part.parts]
    return {**block, "content": content, **({"is_error": True} if part.failed else {})}


def _block(part: Content) -> dict[str, Any]:
    match part:
        case Image(url) if url.startswith("data:") and ";base64," in url:
            kind, _, data = url.removeprefix("data:").partition(";base64,")
            source = {"type": "base64", "media_type": kind, "data": data}
            return {"type": "image", "source": source}
        case Image(url):
            return {"type": "image", "source": {"type": "url", "url": url}}
        case _:
            return {"type": "text", "text": turn.words(part)}


def mended(lines: Sequence[bytes], due: Sequence[str]) -> list[bytes]:
    """The messages with exactly the results that are due, at their head."""
    messages, found = [_decode(line) for line in lines], dict[str, Any]()
    for message in messages:
        if message["role"] == "user" and isinstance(message["content"], list):
            results = [b for b in message["content"] if b["type"] == "tool_result"]
            found |= {block["tool_use_id"]: block for block in reversed(results)}
            message["content"] = [b for b in message["content"] if b["type"] != "tool_result"]
    results = [found.get(call_id) or _result(Slot(call_id)) for call_id in due]
    return [_encode(each) for each in _headed(results, messages) if each["content"]]


def _headed(results: list[Any], messages: list[Any]) -> list[Any]:
    first = messages[0] if messages else None
    if first and first["role"] == "user" and isinstance(first["content"], list):
        return [{**first, "content": results + first["content"]}, *messages[1:]]
    return [{"role": "user", "content": results}, *messages]


def opening(first: bytes) -> list[bytes]:
    """A word of the user's, which must come first."""
    return [NOTICE] if _role.decode(first).role == "assistant" else []


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
    salvaged = [_salvaged_block(b) for b in blocks if isinstance(b, dict)]
    return _Message(salvaged, found.get("stop_reason"))


def _salvaged_block(found: dict[str, Any]) -> _Block:
    arguments = Raw(_encode(found.get("input", {})))
    return _Block(found.get("type"), found.get("id"), found.get("name"), arguments)
