"""OpenAI's Chat Completions format: what a message asks for, and how a context is written in it."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from flightlog.errors import InvalidEvent, InvalidValue
from flightlog.messages import turn
from flightlog.messages.provider import Announced, Facts, Reply, Shown, is_name, unique
from flightlog.messages.segment import Answer, Entry, Results, Said, Sent, Slot
from flightlog.messages.turn import Asked, Content, Given, Image, Opaque, Part, Text, Turn
from flightlog.wire import carry, stand_in
from flightlog.wire.chunk import Blob

NAME: str = "openai-chat"
VIEW: str = "openai-chat/1"
LEADS: frozenset[str] = frozenset({"system", "developer"})

_USERS_BLOCKS = frozenset({"text", "image_url", "input_audio", "file"})
# A response's fields that no request takes; null ones are refused or say nothing.
_OUTPUT_ONLY = frozenset({"annotations", "function_call", "refusal", "audio"})
_ERROR = "Error: "  # a tool message has no field for it
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

Message = dict[str, Any]


def reply(message: Raw) -> Reply:
    """The calls of a response, or of a bare message, and its finish reason.

    Arguments that are no JSON are passed on as the text that they are. A call id that the message
    repeats gets a number behind it; `native` writes the same ids.
    """
    try:
        value = carry.unpack(message)
    except InvalidEvent:
        return Reply()
    calls = [_announced(call, call_id) for call, call_id in _calls(_chosen(value))]
    return Reply(tuple(calls), _finish(value))


def read_response(message: Any) -> Facts:
    """What a model_response says beside the message, given as a value."""
    found = message.get("usage") if isinstance(message, dict) else None
    return Facts(carry.pack(found, where="usage"), _finish(message))


def _choice(response: Any) -> Message:
    choices = response.get("choices") if isinstance(response, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _chosen(response: Any) -> Message:
    """The message in a response; a bare one is itself."""
    if isinstance(response, dict) and "choices" in response:
        response = _choice(response).get("message")
    return response if isinstance(response, dict) else {}


def _finish(response: Any) -> str | None:
    reason = _choice(response).get("finish_reason")
    return reason if isinstance(reason, str) else None


def _calls(message: Message) -> list[tuple[Message, str]]:
    """The calls that can be named, each with its unique id."""
    listed = message.get("tool_calls")
    calls = [call for call in listed if _is_call(call)] if isinstance(listed, list) else []
    return list(zip(calls, unique([call["id"] for call in calls]), strict=True))


def _is_call(call: object) -> bool:
    return isinstance(call, dict) and is_name(call.get("id")) and is_name(_tool(call)[0])


def _tool(call: Message) -> tuple[Any, Any]:
    """The tool's name, and its arguments as they were written."""
    match call:
        case {"type": "custom", "custom": dict() as tool}:
            return tool.get("name"), tool.get("input")
        case {"function": dict() as tool}:
            return tool.get("name"), tool.get("arguments")
        case _:
            return None, None


def _announced(call: Message, call_id: str) -> Announced:
    name, written = _tool(call)
    arguments = written if call.get("type") == "custom" else _arguments(written)
    try:
        packed = carry.pack(arguments, where="arguments")
    except InvalidValue:  # too deep
        packed = carry.pack(written, where="arguments")
    return Announced(call_id, str(name), packed)


def _arguments(written: Any) -> Any:
    """The value that arguments are the JSON text of; text that is none stays text.

    Of a text that lies in a blob the head says which it is: there is one if it is no JSON.
    """
    if isinstance(written, Blob):
        return replace(written, kind="json") if _is_json(written) else written
    if written is None or (isinstance(written, str) and not written.strip()):
        return {}
    if not isinstance(written, str):
        return written
    if (value := stand_in.valued(written)) is not None:
        return value
    try:
        return json.loads(stand_in.unnested(written))
    except (ValueError, RecursionError):
        return written


def _is_json(blob: Blob) -> bool:
    return blob.kind == "text" and not blob.head


def _sendable(written: Any) -> Any:
    """The arguments' value as another provider's request can hold it: in UTF-8."""
    value = _arguments(written)
    try:
        _encode(value)
    except (UnicodeEncodeError, OverflowError, RecursionError):
        try:
            return carry.shown(carry.pack(value))
        except InvalidValue:
            return written
    return value


def native(entry: Entry) -> Shown:
    """The entry as messages: one for each result."""
    match entry:
        case Sent():
            return _sent(turn.decoded(entry.message))
        case Said():
            return _shown({"role": "user", "content": _said(turn.decoded(entry.content))})
        case Answer():
            return answer(turn.decoded(entry.message))
        case Results():
            return write(Turn("user", tuple([turn.given(slot) for slot in entry.slots])))


def answer(message: Any) -> Shown:
    """A response, given as a value, as a request takes it."""
    return _shown(_answered(_chosen(message)))


def _shown(message: Message) -> Shown:
    asks = [call_id for _, call_id in _calls(message)] if message["role"] == "assistant" else []
    has_content = bool(message.get("content") or asks or message.get("audio"))
    if not has_content:
        return Shown()
    return Shown((message,), tuple(asks), words=_is_words(message))


def _is_words(message: Message) -> bool:
    return len(message) == 2 and turn.are_words(message.get("content"))


def _said(content: Any) -> Any:
    if not isinstance(content, list):
        parts = turn.content(content)
        return turn.words(parts[0]) if parts else None
    blocks = [b for b in content if turn.is_block(b) and b["type"] not in turn.NOT_SAID]
    own = [block if block["type"] in _USERS_BLOCKS else _foreign(block) for block in blocks]
    return [block for block in own if not _is_blank(block)]


def _foreign(block: Message) -> Message:
    return _block(turn.of_block(block))


def _is_blank(block: Message) -> bool:
    text = block.get("text")
    return block["type"] == "text" and not (isinstance(text, str) and text.strip())


def _answered(message: Message) -> Message:
    """A response's message as a request takes it."""
    kept = {k: v for k, v in message.items() if v is not None and k not in _OUTPUT_ONLY}
    calls = [_named(call, call_id) for call, call_id in _calls(message)]
    audio = message.get("audio")
    answer: Message = {"role": "assistant", "content": _spoken(message), **kept}
    answer |= {"role": "assistant", "content": _spoken(message), "tool_calls": calls}
    if not calls:
        del answer["tool_calls"]
    if isinstance(audio, dict) and is_name(audio.get("id")):
        answer["audio"] = {"id": audio["id"]}
    return answer


def _spoken(message: Message) -> Any:
    """The content of an answer: its words, or its refusal."""
    content, refusal = message.get("content"), message.get("refusal")
    if isinstance(content, list):
        blocks = [b for b in content if turn.is_block(b) and b["type"] in ("text", "refusal")]
        content = [block for block in blocks if not _is_blank(block)] or None
    elif not (isinstance(content, str) and content.strip()):
        content = None
    if content is None and isinstance(refusal, str) and refusal.strip():
        return [{"type": "refusal", "refusal": refusal}]
    return content


def _named(call: Message, call_id: str) -> Message:
    """The call under its id, its arguments as text."""
    if call["id"] != call_id:
        call = {**call, "id": call_id}
    name, written = _tool(call)
    if isinstance(written, str) or call.get("type") == "custom":
        return call
    return {**call, "function": {"name": name, "arguments": _text_of(written)}}


def _text_of(arguments: Any) -> str:
    return "{}" if arguments is None else turn.json_text(arguments)


def _sent(message: Any) -> Shown:
    """A message as it was sent, without what the provider would refuse."""
    match message:
        case [*several]:
            found = [_sent(each) for each in several]
            if any(not each.gives for each in found):
                return Shown()
            gives = tuple([call_id for each in found for call_id in each.gives])
            return Shown(tuple([m for each in found for m in each.messages]), (), gives)
        case {"role": "tool", "tool_call_id": str(call_id), "content": str() | list() as content}:
            return Shown(({**message, "content": _told(content)},), (), (call_id,))
        case {"role": "assistant"}:
            return _shown(message if _is_sendable(message) else _answered(message))
        case {"role": "user", "content": content}:
            return _shown({**message, "content": _said(content)})
        case {"role": "system" | "developer", "content": str() | list() as content}:
            return _shown({**message, "content": _worded(content)})
        case _:
            return Shown()


def _is_sendable(message: Message) -> bool:
    """Whether all of it can be sent: its calls as they stand, and words where there are none."""
    calls, content = _calls(message), message.get("content")
    listed = message.get("tool_calls") or []
    if listed != [_named(call, call_id) for call, call_id in calls]:
        return False
    if content is None or content == "":
        return bool(calls or message.get("audio"))
    return bool(_spoken(message) == content)


def _worded(content: Any) -> Any:
    """A content of words alone."""
    if isinstance(content, str):
        return content if content.strip() else None
    found = _said(content)
    return [block for block in found if block["type"] == "text"]


def _told(content: Any) -> Any:
    """A result's content, of words alone; there must be some in a list."""
    if isinstance(content, str):
        return content
    parts = turn.content(content)
    texts = [_block(Text(turn.words(part))) for part in parts]
    return content if content and content == texts else _short(texts) if texts else turn.NOTHING


def read(message: Raw) -> Turn | None:
    """What the message says; None for one that says nothing."""
    found = turn.decoded(message)
    several = turn.dicts(found) if isinstance(found, list) else [_chosen(found)]
    parts = tuple([part for each in several for part in _parts(each)])
    by_model = len(several) == 1 and several[0].get("role", "assistant") == "assistant"
    return Turn("assistant" if by_model else "user", parts) if parts else None


def _parts(message: Message) -> list[Part]:
    if message.get("role") == "tool":
        call_id = message.get("tool_call_id")
        said = turn.content(message.get("content"))
        return [Given(call_id, said)] if isinstance(call_id, str) else []
    if message.get("role", "assistant") != "assistant":
        return list(turn.content(message.get("content")))
    calls = [(call_id, *_tool(call), call) for call, call_id in _calls(message)]
    asked = [
        Asked(call_id, name, written if call.get("type") == "custom" else _sendable(written))
        for call_id, name, written, call in calls
    ]
    return [*turn.content(_spoken(message)), *asked]


def write(said: Turn) -> Shown:
    """Another provider's message: words, pictures, calls and results; no reasoning."""
    if said.role == "assistant":
        return _shown(_assistant(said.parts))
    given = [part for part in said.parts if isinstance(part, Given)]
    rest = [_block(part) for part in said.parts if isinstance(part, Text | Image | Opaque)]
    messages = [_given(part) for part in given]
    if rest:
        messages.append({"role": "user", "content": _short(rest)})
    return Shown(tuple(messages), (), tuple([part.call_id for part in given]))


def _assistant(parts: Sequence[Part]) -> Message:
    texts = [_block(part) for part in parts if isinstance(part, Text)]
    calls = [_asked(part) for part in parts if isinstance(part, Asked)]
    answer: Message = {"role": "assistant", "content": _short(texts) if texts else None}
    return {**answer, "tool_calls": calls} if calls else answer


def _asked(part: Asked) -> Message:
    function = {"name": part.name, "arguments": _text_of(part.arguments)}
    return {"id": part.call_id, "type": "function", "function": function}


def _given(part: Given) -> Message:
    texts = [{"type": "text", "text": turn.words(each)} for each in part.parts]
    if not texts:
        texts = [{"type": "text", "text": turn.NOTHING}]
    if part.failed:
        texts[0]["text"] = _ERROR + texts[0]["text"]
    return {"role": "tool", "tool_call_id": part.call_id, "content": _short(texts)}


def _short(blocks: list[Message]) -> Any:
    """A single text as text."""
    is_text = len(blocks) == 1 and blocks[0]["type"] == "text"
    return blocks[0]["text"] if is_text else blocks


def _block(part: Content) -> Message:
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": part.url}}
    return {"type": "text", "text": turn.words(part)}


def mended(lines: Sequence[bytes], due: Sequence[str]) -> list[bytes]:
    """The messages with exactly the results that are due, at their head."""
    messages = [_decode(line) for line in lines]
    tools = [each for each in messages if each["role"] == "tool"]
    found = {each["tool_call_id"]: each for each in reversed(tools)}
    results = [found.get(call_id) or _given(turn.given(Slot(call_id))) for call_id in due]
    return [_encode(each) for each in (*results, *(m for m in messages if m["role"] != "tool"))]


def opening(first: bytes) -> list[bytes]:
    """Nothing: any message may come first."""
    del first
    return []
