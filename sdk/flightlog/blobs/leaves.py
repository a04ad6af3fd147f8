"""What may leave a value for blobs, and what then stands in its place. Pure.

In a message the views and the fold look into blocks, calls, ids and names: these stay. Texts leave
it, values under keys that nobody looks at, the input of calls, and rows of text blocks but for the
first of each, so that a list of blocks stays one.
"""

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.blobs import held
from flightlog.errors import InvalidValue
from flightlog.messages import turn
from flightlog.wire import carry, stand_in
from flightlog.wire.chunk import Blob, Kind

_HEAD = 256  # characters in which a data URL says what it holds, or a text what it is about
_MOST_BYTES = 6  # of a character in JSON

_TOP = ""  # in place of the key of a value that is held by no other
# Texts under these keys are ids, names and kinds.
_STRUCTURE = frozenset(
    {"call_id", "finish_reason", "id", "media_type", "model", "name", "object", "role"}
    | {"signature", "stop", "stop_reason", "tool_call_id", "tool_use_id", "type"}
)
_LEFT_OUT_IF_BLANK = frozenset({_TOP, "content", "refusal", "text"})
_URLS = frozenset({"image_url", "url"})  # views look for what a data URL there holds
# Values under these keys are looked into.
_LOOKED_INTO = frozenset(
    {"arguments", "audio", "cache_control", "choices", "content", "custom", "function"}
    | {"image_url", "message", "refusal", "source", "text", "tool_calls", "usage"}
    | _STRUCTURE
)

_GONE = object()  # in the place of an item that left together with the one before it
_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError, OverflowError)
_encode = msgspec.json.Encoder().encode


class Leaf(Struct):
    """What may leave: where it is held, and what it will be; `size` is what it takes there."""

    size: int
    holder: Any
    key: Any
    kind: Kind
    content: bytes
    head: str = ""
    count: int = 0

    def put(self, blob: Blob) -> None:
        """Put the reference in its place."""
        mark = {carry.MARK: "blob", "value": msgspec.to_builtins(blob)}
        match self.kind:
            case "items":
                is_block = turn.is_block(self.holder[self.key])
                self.holder[self.key] = {"type": "text", "text": mark} if is_block else mark
                for at in range(self.key + 1, self.key + self.count):
                    self.holder[at] = _GONE
            case _:
                self.holder[self.key] = mark


def closed(value: Any) -> Any:
    """The value without the places of what left together with other items."""
    match value:
        case dict():
            return {name: closed(item) for name, item in value.items()}
        case list():
            return [closed(item) for item in value if item is not _GONE]
        case _:
            return value


def texts(holder: Any, key: Any, *, least: int, message: bool) -> Iterator[Leaf]:
    """The texts of `least` bytes or more; ids and names stay in a message, as do blank texts.

    Bytes leave as the text that they are written as, within their mark.
    """
    yield from _texts(holder, key, _TOP, least, message)


def _texts(holder: Any, key: Any, name: str | None, least: int, message: bool) -> Iterator[Leaf]:
    value = holder[key]
    if (text := held.text_of(value)) is not None:
        if len(text) * _MOST_BYTES >= least:
            head = _head(text, name, holder) if message else ""
            yield from _text(holder, key, text, least, head)
        return
    match value:
        case {carry.MARK: "dict", "value": list(pairs)} if message:
            for pair in pairs:
                yield from _texts(pair, len(pair) - 1, None, least, message)
        case {carry.MARK: "bytes" | "int", "value": str()} if message:
            yield from _texts(value, "value", None, least, message)
        case dict() if carry.MARK not in value:
            for inner in value:
                yield from _texts(value, inner, inner, least, message)
        case list():
            for at in range(len(value)):
                yield from _texts(value, at, None, least, message)
        case _:
            pass


def _text(holder: Any, key: Any, text: str, least: int, head: str | None) -> Iterator[Leaf]:
    size = len(_encode(holder[key]))
    if head is not None and size >= least:
        content = text[len(head) :].encode("utf-8", "surrogatepass")
        yield Leaf(size, holder, key, "text", content, head)


def _head(text: str, name: str | None, holder: Any) -> str | None:
    """What of a message's text has to stay; None if all of it."""
    if name in _STRUCTURE:
        return None
    if name == "arguments":
        return _head_of_arguments(text)
    if name in _LEFT_OUT_IF_BLANK and not text.strip():
        is_left_out = name == _TOP or (name == "text" and holder.get("type") == "text")
        return text[:1] if is_left_out and text else None
    if not text.startswith("data:"):
        return ""
    at = text.find(";base64,", 0, _HEAD)
    if at < 0:
        return None if name in _URLS and ";base64," in text else ""
    head = text[: at + len(";base64,")]
    return head if head.isascii() and text[len(head) :].strip() else None


def _head_of_arguments(text: str) -> str | None:
    """Nothing of an object's JSON stays, of what is no JSON its beginning, and all of the rest."""
    if not text.strip():
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text[: len(text) - len(text.lstrip()) + 1]
    try:
        packed = bytes(carry.pack(value))
        same = isinstance(value, dict) and packed == _encode(carry.shown(text.encode()))
    except (InvalidValue, *_UNREADABLE):
        return None
    return "" if same and not held.references(packed) else None


def values(holder: Any, key: Any, *, least: int) -> Iterator[Leaf]:
    """The values and rows of items, of `least` bytes or more, that nobody looks into."""
    value = holder[key]
    match value:
        case dict() if carry.MARK not in value:
            for name in value:
                leaf = _value(value, name, least)
                yield from values(value, name, least=least) if leaf is None else (leaf,)
        case list():
            rows = list(_rows(value, least))
            yield from rows
            gone = {at for row in rows for at in range(row.key, row.key + row.count)}
            for at in range(len(value)):
                if at not in gone:
                    yield from values(value, at, least=least)
        case _:
            pass


def _value(holder: dict[str, Any], name: str, least: int) -> Leaf | None:
    value = holder[name]
    if name in _LOOKED_INTO or not isinstance(value, dict | list):
        return None
    if carry.MARK in value or (name == "input" and isinstance(value, list)):
        return None
    content = _encode(value)
    if len(content) < least or held.references(content):
        return None
    return Leaf(len(content), holder, name, "json", content)


def _rows(items: list[Any], least: int) -> Iterator[Leaf]:
    """Text blocks in a row, but for the first of them."""
    begin = 0
    for is_plain, run in groupby(items, key=_is_plain):
        row = list(run)
        if is_plain and (leaf := _row(items, begin + 1, row[1:], least)) is not None:
            yield leaf
        begin += len(row)


def unseen(items: list[Any], *, least: int) -> Iterator[Leaf]:
    """Items in a row that are no blocks: what a user says shows none of them."""
    begin = 0
    for is_block, run in groupby(items, key=turn.is_block):
        row = list(run)
        if not is_block and (leaf := _row(items, begin, row, least)) is not None:
            yield leaf
        begin += len(row)


def _row(items: list[Any], begin: int, row: list[Any], least: int) -> Leaf | None:
    content = _encode(row)
    if len(content) < max(least, 3) or held.references(content):
        return None
    return Leaf(len(content), items, begin, "items", content, count=len(row))


def _is_plain(item: object) -> bool:
    """Whether it is a block of words alone, which all views show as it is."""
    if not isinstance(item, dict) or list(item) != ["type", "text"] or item["type"] != "text":
        return False
    text = held.text_of(item["text"])
    return text is not None and bool(text.strip())


def typed_head(text: str) -> str:
    """What stays of a text that is no value, and stands for it where it is shown."""
    head = text[:_HEAD].partition(stand_in.BEGIN)[0]
    return "" if head.isspace() else head
