"""What of a payload goes into blobs: its largest texts and values, until the rest is small. Pure.

What a fold looks into (blocks, calls, ids, names) stays in the event, so that no fold ever needs a
blob: only texts leave a message, and whole values where nothing but their author reads them.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from flightlog.blobs import held
from flightlog.errors import TooLarge
from flightlog.messages import turn
from flightlog.wire import carry, chunk
from flightlog.wire import payload as payloads
from flightlog.wire.chunk import Blob

THRESHOLD = 256 * 1024  # bytes of a payload that may stay in its event
LEAST = 4096  # bytes of a text that is worth a blob: its mark has 160
_MARK_BYTES = 160
_HEAD = 256  # characters in which a data URL says what it holds

Leaves = Literal["texts", "no blocks", "all"]

# Texts under these keys are ids, names and kinds, or (arguments) JSON that a fold reads.
_STRUCTURE = frozenset(
    {"arguments", "call_id", "finish_reason", "id", "media_type", "model", "name", "object"}
    | {"role", "signature", "stop", "stop_reason", "tool_call_id", "tool_use_id", "type"}
)
_URLS = frozenset({"image_url", "url"})  # views look for what a data URL there holds
# Fields that hold their author's values, and which of these may leave whole.
_FIELDS: dict[str, dict[str, Leaves]] = {
    "user_message": {"content": "texts"},
    "model_request": {"rest": "texts"},
    "model_response": {"message": "texts"},
    "tool_call": {"arguments": "all"},
    "tool_result": {"output": "no blocks"},
    "hook_call": {"event": "all"},
    "hook_decision": {"decision": "all"},
    "decision_made": {"output": "no blocks"},
    "value_recorded": {"value": "all"},
    "compact": {"summary": "texts", "rest": "texts"},
    "checkpoint": {"data": "all"},
    "session_ended": {"result": "all"},
}

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Limits(Struct, frozen=True):
    """Payloads above `threshold` bytes spill texts of `least` bytes or more, in chunks."""

    threshold: int = THRESHOLD
    least: int = LEAST
    chunk: int = chunk.SIZE


SPILLS = Limits()


class Spilled(Struct, frozen=True):
    """A content that must be stored before the event that refers to it."""

    blob: Blob
    content: bytes


class _Field:
    """A value in a payload, and the texts in it that may leave."""

    def __init__(self, place: tuple[str, ...], raw: Raw, leaves: Leaves) -> None:
        self.place, self.original, self.leaves = place, raw, leaves
        self.value = _readable(raw, exact=place[0] == "params")
        self.spilled: dict[int, Spilled] = {}

    @property
    def raw(self) -> Raw:
        """The value as it stands now."""
        return Raw(_encode(self.value[0])) if self.value and self.spilled else self.original


class _Leaf(Struct):
    """A text, and the list or dict that holds it."""

    size: int
    text: str
    field: _Field
    holder: Any
    key: Any


def spill(type: str, raw: Raw, limits: Limits) -> tuple[Raw, list[Spilled]]:
    """The payload with marks for what became blobs, and these. Deterministic.

    Largest texts first, then whole values. What still is too large is the appender's to refuse.
    Raises `TooLarge` for a content that no blob may hold.
    """
    if len(raw) <= limits.threshold:
        return raw, []
    if type not in payloads.TYPES and bytes(raw)[:1] != b"{":  # a text or a list of its author
        boxed, spilled = spill(type, Raw(b'{"":' + bytes(raw) + b"}"), limits)
        return _fields(boxed)[""], spilled
    try:
        payload = _fields(raw)
        fields = list(_places(type, payload))
    except _UNREADABLE:
        return raw, []
    left = _leaves_out(fields, len(raw) - limits.threshold, limits)
    if left > 0:
        _values_out(fields, left, limits)
    changed = {field.place: field.raw for field in fields if field.spilled}
    spilled = [each for field in fields for each in field.spilled.values()]
    return (_with(payload, changed), spilled) if spilled else (raw, [])


def _places(type: str, payload: dict[str, Raw]) -> Iterator[_Field]:
    known = payloads.TYPES.get(type)
    named = known.__struct_fields__ if known else ()
    for name, raw in payload.items():
        if name not in named:
            yield _Field((name,), raw, "all")
        elif type == "model_request" and name == "params":
            for param, value in _fields(raw).items():
                yield _Field((name, param), value, "all")
        elif (leaves := _FIELDS.get(type, {}).get(name)) is not None:
            yield _Field((name,), raw, leaves)


def _readable(raw: Raw, *, exact: bool) -> list[Any] | None:
    """The value, alone in a list; None for one that would not be written back as it is."""
    try:
        value = _decode(raw)
    except _UNREADABLE:
        return None
    return None if exact and _encode(value) != bytes(raw) else [value]


def _leaves_out(fields: list[_Field], excess: int, limits: Limits) -> int:
    leaves = [
        leaf
        for field in fields
        for leaf in (_leaves(field, field.value, 0, field.place[-1]) if field.value else ())
        if leaf.size >= limits.least
    ]
    for leaf in sorted(leaves, key=lambda leaf: -leaf.size):
        if excess <= 0:
            break
        head = _head(leaf.text)
        content = leaf.text[len(head) :].encode("utf-8", "surrogatepass")
        blob = _describe(leaf.field, content, "text", limits, head=head)
        leaf.holder[leaf.key] = _mark(blob)
        leaf.field.spilled[len(leaf.field.spilled)] = Spilled(blob, content)
        excess -= leaf.size - _MARK_BYTES
    return excess


def _leaves(field: _Field, holder: Any, key: Any, name: str | None) -> Iterator[_Leaf]:
    """The texts that may leave, but for blank ones, which views leave out, and structure."""
    value = holder[key]
    if (text := held.text_of(value)) is not None:
        if name not in _STRUCTURE and _may_leave(text, name):
            yield _Leaf(len(_encode(value)), text, field, holder, key)
    elif isinstance(value, dict) and carry.MARK not in value:
        for inner in value:
            yield from _leaves(field, value, inner, inner)
    elif isinstance(value, list):
        for at in range(len(value)):
            yield from _leaves(field, value, at, None)


def _may_leave(text: str, name: str | None) -> bool:
    head = _head(text)
    if name in _URLS and text.startswith("data:") and not head and ";base64," in text:
        return False
    return head.isascii() and bool(text[len(head) :].strip())


def _head(text: str) -> str:
    """The part of a data URL that views look at: it stays."""
    if not text.startswith("data:"):
        return ""
    at = text.find(";base64,", 0, _HEAD)
    return text[: at + len(";base64,")] if at >= 0 else ""


def _values_out(fields: list[_Field], excess: int, limits: Limits) -> None:
    for field in sorted(fields, key=lambda field: -len(field.raw)):
        size = len(field.raw)
        if excess <= 0 or size < limits.least:
            break
        if not _may_leave_whole(field):
            continue
        content = bytes(field.original)
        blob = _describe(field, content, "json", limits)
        field.value, field.spilled = [_mark(blob)], {0: Spilled(blob, content)}
        excess -= size - _MARK_BYTES


def _may_leave_whole(field: _Field) -> bool:
    """Whether nothing looks inside, nothing in it is a reference, and it is no text."""
    value = field.value[0] if field.value else None
    if field.leaves == "texts" or value is None or held.references(field.original):
        return False
    if held.text_of(value) is not None or (isinstance(value, dict) and _is_blob(value)):
        return False
    return field.leaves == "all" or not _are_blocks(value)


def _are_blocks(value: Any) -> bool:
    return isinstance(value, list) and all(turn.is_block(each) for each in value)


def _is_blob(value: dict[str, Any]) -> bool:
    return value.get(carry.MARK) == "blob"


def _describe(
    field: _Field, content: bytes, kind: chunk.Kind, limits: Limits, *, head: str = ""
) -> Blob:
    if len(content) > chunk.LIMIT:
        raise TooLarge(".".join(field.place), len(content), chunk.LIMIT)
    return chunk.describe(content, kind, head=head, size=limits.chunk)


def _mark(blob: Blob) -> dict[str, Any]:
    return {carry.MARK: "blob", "value": msgspec.to_builtins(blob)}


def _with(payload: dict[str, Raw], changed: dict[tuple[str, ...], Raw]) -> Raw:
    top, params = dict(payload), dict[str, Raw]()
    for place, raw in changed.items():
        if len(place) == 1:
            top[place[0]] = raw
        else:
            params[place[1]] = raw
    if params:
        top["params"] = Raw(_encode({**_fields(payload["params"]), **params}))
    return Raw(_encode(top))
