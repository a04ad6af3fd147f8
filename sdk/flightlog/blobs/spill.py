"""What of a payload goes into blobs: its largest texts and values, until the rest is small. Pure.

What a fold looks into (blocks, calls, ids, names) stays in the event, so that no fold ever needs a
blob; what may leave a message is `leaves`' to say. Where nobody but the author reads a value, any
text in it may leave, and all of it.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from flightlog.blobs import held, leaves
from flightlog.blobs.leaves import Leaf
from flightlog.errors import TooLarge
from flightlog.messages import turn
from flightlog.wire import carry, chunk, stand_in
from flightlog.wire import payload as payloads
from flightlog.wire.chunk import Blob

THRESHOLD = 256 * 1024  # bytes of a payload that may stay in its event
LEAST = 4096  # bytes of a text that is worth a blob: its mark has 160
_MARK_BYTES = 160
_FEW = 32  # texts that leave one by one although a value that holds many could

# An author's own value, what a user says, what a tool returned, a provider's message, or a text.
Holds = Literal["all", "content", "output", "message", "text"]

_FIELDS: dict[str, dict[str, Holds]] = {
    "session_suspended": {"reason": "text"},
    "session_ended": {"result": "all", "error": "text"},
    "user_message": {"content": "content"},
    "model_messages": {"messages": "message"},
    "model_request": {"rest": "message"},
    "model_response": {"message": "message"},
    "tool_call": {"arguments": "all"},
    "tool_result": {"output": "output"},
    "hook_call": {"event": "all"},
    "hook_decision": {"decision": "all", "reason": "text"},
    "decision_requested": {"question": "text"},
    "decision_made": {"output": "output", "reason": "text"},
    "value_recorded": {"value": "all"},
    "compact": {"summary": "content", "rest": "message"},
    "checkpoint": {"data": "all"},
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
    """A value in a payload, and what of it has left."""

    def __init__(self, place: tuple[str, ...], raw: Raw, holds: Holds) -> None:
        self.place, self.original, self.holds = place, raw, holds
        self.value = _readable(raw, exact=place[0] == "params")
        self.spilled: list[Spilled] = []

    @property
    def raw(self) -> Raw:
        """The value as it stands now."""
        if self.value is None or not self.spilled:
            return self.original
        return Raw(_encode(leaves.closed(self.value[0])))

    def texts(self, least: int) -> Iterator[Leaf]:
        """The texts that may leave, one by one."""
        if self.value is not None and self.holds == "text":
            if len(self.original) >= least and not self.spilled:
                yield from self._itself()
        elif self.value is not None:
            yield from leaves.texts(self.value, 0, least=least, message=self._is_looked_into())

    def _itself(self) -> Iterator[Leaf]:
        text = self.value[0] if self.value else None
        if isinstance(text, str):
            head = leaves.typed_head(text)
            content = text[len(head) :].encode()
            if content:
                yield Leaf(len(self.original), self.value, 0, "text", content, head)

    def values(self, least: int) -> Iterator[Leaf]:
        """The values that may leave whole."""
        if self.value is None or self.holds == "text":
            return
        if self._may_leave():
            size = len(self.original)
            if size >= least:
                yield Leaf(size, self.value, 0, "json", bytes(self.original))
        elif self._is_looked_into():
            yield from leaves.values(self.value, 0, least=least)
            if self.holds == "content" and isinstance(self.value[0], list):
                yield from leaves.unseen(self.value[0], least=least)

    def _is_looked_into(self) -> bool:
        found = self.value[0] if self.value else None
        match self.holds:
            case "all" | "text":
                return False
            case "message":
                return True
            case "content":
                return not isinstance(found, dict) or carry.MARK in found
            case _:
                return held.text_of(found) is not None or _are_blocks(found)

    def _may_leave(self) -> bool:
        """Whether it has parts, nothing looks at these, and nothing in it is a reference."""
        found = self.value[0] if self.value else None
        if not isinstance(found, dict | list) or held.text_of(found) is not None:
            return False
        if held.references(self.original):
            return False
        is_marked = isinstance(found, dict) and carry.MARK in found
        return is_marked or not self._is_looked_into()

    def leave(self, leaf: Leaf, limits: Limits) -> None:
        """Put a reference in the place of the content."""
        if len(leaf.content) > chunk.LIMIT:
            raise TooLarge(".".join(self.place), len(leaf.content), chunk.LIMIT)
        blob = chunk.describe(leaf.content, leaf.kind, head=leaf.head, size=limits.chunk)
        if self.holds == "text":
            self.value = [stand_in.of(blob)]
        else:
            leaf.put(blob)
        self.spilled.append(Spilled(blob, leaf.content))


def spills(type: str, raw: Raw, limits: Limits) -> bool:
    """Whether anything of the payload may have to leave: it is large, or looks like a reference."""
    return len(raw) > limits.threshold or _looks_like_one(type, raw)


def _looks_like_one(type: str, raw: Raw) -> bool:
    return "text" in _FIELDS.get(type, {}).values() and stand_in.BEGIN_BYTES in bytes(raw)


def spill(type: str, raw: Raw, limits: Limits) -> tuple[Raw, list[Spilled]]:
    """The payload with marks for what became blobs, and these. Deterministic.

    Largest texts first; values where these do not suffice, or are many. What still is too large is
    the appender's to refuse. Raises `TooLarge` for a content that no blob may hold.
    """
    if not spills(type, raw, limits):
        return raw, []
    if type not in payloads.TYPES and bytes(raw)[:1] != b"{":  # a text or a list of its author
        boxed, spilled = spill(type, Raw(b'{"":' + bytes(raw) + b"}"), limits)
        return _fields(boxed)[""], spilled
    try:
        payload = _fields(raw)
        fields = list(_places(type, payload))
    except _UNREADABLE:
        return raw, []
    _leave(fields, len(raw) - limits.threshold, limits)
    changed = {field.place: field.raw for field in fields if field.spilled}
    spilled = [each for field in fields for each in field.spilled]
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
        elif (holds := _FIELDS.get(type, {}).get(name)) is not None:
            yield _Field((name,), raw, holds)


def _readable(raw: Raw, *, exact: bool) -> list[Any] | None:
    """The value, alone in a list; None for one that would not be written back as it is."""
    try:
        value = _decode(raw)
    except _UNREADABLE:
        return None
    return None if exact and _encode(value) != bytes(raw) else [value]


def _leave(fields: list[_Field], excess: int, limits: Limits) -> None:
    for field in fields:
        if field.holds == "text" and stand_in.BEGIN_BYTES in bytes(field.original):
            excess -= _out(((field, leaf) for leaf in field.texts(0)), limits)
    chosen = _largest(_texts(fields, limits), excess)
    if sum(_gain(leaf) for _, leaf in chosen) < excess or len(chosen) > _FEW:
        whole = [(f, leaf) for f in fields for leaf in f.values(limits.least)]
        excess -= _out(_largest(whole, excess), limits)
        chosen = _largest(_texts(fields, limits), excess)
    _out(chosen, limits)


def _texts(fields: list[_Field], limits: Limits) -> list[tuple[_Field, Leaf]]:
    return [(field, leaf) for field in fields for leaf in field.texts(limits.least)]


def _largest(found: list[tuple[_Field, Leaf]], excess: int) -> list[tuple[_Field, Leaf]]:
    """The largest, as many as are needed."""
    chosen = list[tuple[_Field, Leaf]]()
    for field, leaf in sorted(found, key=lambda each: -each[1].size):
        if excess <= 0:
            break
        chosen.append((field, leaf))
        excess -= _gain(leaf)
    return chosen


def _gain(leaf: Leaf) -> int:
    return leaf.size - _MARK_BYTES - len(leaf.head)


def _out(chosen: Iterable[tuple[_Field, Leaf]], limits: Limits) -> int:
    """Let them leave; returns the bytes that this saves."""
    saved = 0
    for field, leaf in chosen:
        field.leave(leaf, limits)
        saved += _gain(leaf)
    return saved


def _are_blocks(value: Any) -> bool:
    return isinstance(value, list) and all(turn.is_block(each) for each in value)


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
