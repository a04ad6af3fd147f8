"""What a message says, in no provider's format: the form in which one format becomes another."""

from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from flightlog.messages.segment import Slot
from flightlog.wire import carry, stand_in
from flightlog.wire.stand_in import BEGIN

PENDING = "This call has no result yet."
NOTHING = "The tool returned nothing."
_WITHOUT_TEXT = {
    "error": "The tool failed without a message.",
    "unknown": "It is not known whether this call took effect.",
    "cancelled": "The call was cancelled; it may have taken effect all the same.",
}
# A user_message answers no call and signs nothing.
NOT_SAID = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking"})
_encode = msgspec.json.Encoder().encode


class Text(Struct, frozen=True):
    """Words."""

    text: str


class Image(Struct, frozen=True):
    """A picture, by URL; one that is carried along has a `data:` URL."""

    url: str


class Opaque(Struct, frozen=True):
    """What only its own provider can read: documents, sounds, reasoning, server tools."""

    kind: str


class Asked(Struct, frozen=True):
    """A call that the model asks for; `arguments` is a value."""

    call_id: str
    name: str
    arguments: Any


class Given(Struct, frozen=True):
    """The result of a call."""

    call_id: str
    parts: tuple["Content", ...]
    failed: bool = False


Content = Text | Image | Opaque
Part = Content | Asked | Given


class Turn(Struct, frozen=True):
    """A message: who speaks, and what."""

    role: Literal["user", "assistant"]
    parts: tuple[Part, ...]


def content(value: Any) -> tuple[Content, ...]:
    """A message's or a result's content: text, or a list of blocks in any provider's form."""
    match value:
        case None:
            return ()
        case str():
            return (Text(value),) if value.strip() else ()
        case list() if all(is_block(block) for block in value):
            found = [of_block(block) for block in value]
            return tuple([part for part in found if part != Text("")])
        case _:
            return (Text(json_text(value)),)


def are_words(content: Any) -> bool:
    """Whether it is text that every provider takes as it is: nearly all content is."""
    if not isinstance(content, list):
        return isinstance(content, str) and bool(content.strip()) and BEGIN not in content
    for block in content:  # all() with a generator would take a fifth of the decoding's time
        if not isinstance(block, dict) or len(block) != 2 or block.get("type") != "text":
            return False
        text = block.get("text")
        if not isinstance(text, str) or not text or text.isspace() or BEGIN in text:
            return False
    return bool(content)


def is_block(value: object) -> bool:
    """Whether it has what all providers' blocks have: a type."""
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def is_object(value: object) -> bool:
    """Whether it is a JSON object, or stands in for one: no other value leaves a call."""
    return isinstance(value, dict) or stand_in.is_value(value)


def dicts(values: list[Any]) -> list[dict[str, Any]]:
    """Those that are JSON objects."""
    return [value for value in values if isinstance(value, dict)]


def of_block(block: dict[str, Any]) -> Content:
    """A content block in any provider's form; blank text becomes `Text("")`."""
    match block:
        case {"type": "text" | "input_text" | "output_text", "text": str(text)}:
            return Text(text if text.strip() else "")
        case {"type": "refusal", "refusal": str(text)}:
            return Text(text if text.strip() else "")
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return Image(url)
        case {
            "type": "image",
            "source": {"type": "base64", "media_type": str(kind), "data": str(data)},
        }:
            return Image(f"data:{kind};base64,{data}")
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            return Image(url)
        case _:
            return Opaque(str(block["type"]))


def words(part: Content) -> str:
    """The part as text; what has no words is named."""
    match part:
        case Text(text):
            return text
        case Image():
            return "[an image is left out here]"
        case Opaque(kind):
            return f"[left out here: {kind}]"


def given(slot: Slot) -> Given:
    """The result in a slot; words say so where there is none."""
    if slot.outcome is None:
        return Given(slot.call_id, (Text(PENDING),))
    said = content(carry.shown(slot.output))
    if slot.outcome == "ok":
        return Given(slot.call_id, said)
    return Given(slot.call_id, said or (Text(_WITHOUT_TEXT[slot.outcome]),), failed=True)


def json_text(value: Any) -> str:
    """The value as compact JSON."""
    if isinstance(value, str) and stand_in.is_value(value):
        return stand_in.texted(value)
    return stand_in.nested(_encode(value).decode())


def without_text(outcome: str) -> str:
    """What a call that did not end well says when its tool says nothing."""
    return _WITHOUT_TEXT[outcome]


def decoded(raw: Raw) -> Any:
    """The value in the raw JSON; None for what is no JSON."""
    try:
        return carry.shown(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
