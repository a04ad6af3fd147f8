"""Values on their way into JSON and back: what JSON cannot hold travels marked, returns equal."""

import base64
import json
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

from flightlog.errors import InvalidEvent, InvalidValue
from flightlog.wire import stand_in
from flightlog.wire.chunk import Blob

MARK = "$flightlog"
_MARK = MARK.encode()
# Go and Node parse deeper, but CPython's json gives up near 1,000 frames, harness stack included.
MAX_DEPTH = 256
_PLACE = 80  # characters of a value's place that an error shows
_DECIMAL_BITS = 8192  # beyond it hex: CPython refuses to read more than 4,300 decimal digits
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1  # what msgspec and Go's int64/uint64 read exactly

_ESCAPED = re.compile(rb"\\u[fF][dD][dD]0")

Redact = Callable[[str], str]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def pack(value: object, *, where: str = "value", redact: Redact | None = None) -> msgspec.Raw:
    """Encode `value` as JSON that `unpack` turns back into an equal value.

    NaN, infinities, lone surrogates, U+FDD0, bytes, blobs, integers beyond 64 bits and dicts with
    other than string keys are carried as `{"$flightlog": kind, "value": ...}`. Tuples become lists,
    as JSON has no other. `redact` maps every string leaf first. Anything else raises `InvalidValue`
    with its place, before anything is sent.
    """
    try:
        return msgspec.Raw(_encode(_mark(value, where, 0, redact)))
    except RecursionError:  # MAX_DEPTH fits, unless the caller's own stack is deep already
        raise _too_deep(where) from None


def unpack(raw: msgspec.Raw | bytes) -> Any:
    """Decode JSON made by `pack`, marks resolved; raises `InvalidEvent` for what is no JSON.

    JSON of other producers, lone surrogates and NaN included, is read too. What lies in a blob is
    its `Blob`.
    """
    try:
        value = _read(raw)
        return _unmark(value) if _MARK in bytes(raw) else value
    except (RecursionError, ValueError) as exc:
        raise InvalidEvent(f"its payload cannot be read ({type(exc).__name__})") from None


def is_marked(raw: msgspec.Raw | bytes) -> bool:
    """Whether there may be more in JSON made by us than its values: marks, or stand-ins."""
    found = bytes(raw)
    return _MARK in found or stand_in.BEGIN_BYTES in found


def shown(raw: msgspec.Raw | bytes) -> Any:
    """Decode JSON for a provider: lone surrogates, which it refuses, become U+FFFD.

    What lies in a blob becomes what stands in for it, all of the value as its JSON text; other
    marks stay as they are. Raises `msgspec.DecodeError` or `UnicodeDecodeError`.
    """
    value = _decode(raw)
    if _MARK not in bytes(raw):
        return value
    found = _replaced(value)
    return stand_in.texted(found) if isinstance(found, str) else found


def _replaced(value: Any) -> Any:
    match value:
        case list():
            return [_replaced(item) for item in value]
        case {"$flightlog": "str"} if isinstance(text := _unmark(value), str):
            return shown_text(text)
        case {"$flightlog": "blob"} if isinstance(blob := _unmark(value), Blob):
            return value if blob.kind == "bytes" else stand_in.of(blob)
        case {"$flightlog": "dict", "value": list(pairs)}:
            return _replaced_pairs(value, [_replaced(pair) for pair in pairs])
        case dict():
            return {key: _replaced(item) for key, item in value.items()}
        case _:
            return value


def shown_text(text: str) -> str:
    """A text as a provider takes it: U+FFFD for lone surrogates and for U+FDD0."""
    if not _is_plain(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace(stand_in.BEGIN, "\ufffd")


def _replaced_pairs(mark: dict[str, Any], pairs: list[Any]) -> Any:
    try:
        plain = {key: item for key, item in pairs if isinstance(key, str) and key != MARK}
    except (TypeError, ValueError):  # not made by us
        return mark
    return plain if len(plain) == len(pairs) else {**mark, "value": pairs}


def _read(raw: msgspec.Raw | bytes) -> Any:
    try:
        return _decode(raw)
    except msgspec.DecodeError:
        return json.loads(bytes(raw))  # lenient where msgspec is strict: surrogates, 1e999, NaN


def _too_deep(where: str) -> InvalidValue:
    return InvalidValue(where[:_PLACE], f"it is nested deeper than {MAX_DEPTH} levels")


def _mark(value: object, where: str, depth: int, redact: Redact | None) -> object:
    kind = type(value)
    if kind is str:
        return _mark_text(redact(value) if redact else value)  # type: ignore[arg-type]
    if value is None or kind is bool:
        return value
    if kind is int:
        in_range = _INT_MIN <= value <= _INT_MAX  # type: ignore[operator]
        return value if in_range else _marked("int", _digits(value))  # type: ignore[arg-type]
    if kind is float:
        return value if math.isfinite(value) else _marked("float", repr(value))  # type: ignore[arg-type]
    if depth >= MAX_DEPTH:
        raise _too_deep(where)
    if isinstance(value, dict):
        return _mark_dict(value, where, depth + 1, redact)
    if isinstance(value, list | tuple):
        return _mark_list(value, where, depth + 1, redact)
    return _mark_other(value, where, depth + 1, redact)


def _digits(value: int) -> str:
    return str(value) if value.bit_length() <= _DECIMAL_BITS else hex(value)


def _mark_other(value: object, where: str, depth: int, redact: Redact | None) -> object:
    match value:
        case bytes() | bytearray() | memoryview():
            return _marked("bytes", base64.b64encode(bytes(value)).decode())
        case msgspec.Raw():
            return _mark(unpack(value), where, depth, redact) if redact or _odd(value) else value
        case Blob():
            return _marked("blob", _blob(value, where))
        case str():  # subclasses, such as StrEnum members, whose str() is their own
            return _mark(str.__str__(value), where, depth, redact)
        case int():
            return _mark(int(value), where, depth, redact)
        case float():
            return _mark(float(value), where, depth, redact)
        case _:
            return _mark_model(value, where, depth, redact)


def _blob(value: Blob, where: str) -> object:
    """The reference as it is written; what nobody would take for one is refused."""
    written = msgspec.to_builtins(value)
    try:
        msgspec.convert(written, Blob)
    except msgspec.ValidationError as exc:
        raise InvalidValue(where[:_PLACE], f"it is no reference to a blob ({exc})") from None
    return written


def _mark_model(value: object, where: str, depth: int, redact: Redact | None) -> object:
    dump = getattr(value, "model_dump", None)
    if callable(dump):  # the provider SDKs' messages are pydantic models
        return _mark(dump(mode="json", exclude_unset=True), where, depth, redact)
    raise InvalidValue(where[:_PLACE], f"{type(value).__name__} has no JSON form")


def _mark_list(
    value: list[Any] | tuple[Any, ...], where: str, depth: int, redact: Redact | None
) -> list[object]:
    marked: list[object] = []
    for at, item in enumerate(value):  # a comprehension would be one more frame a level
        marked.append(_mark(item, f"{where}[{at}]", depth, redact))
    return marked


def _mark_dict(
    value: dict[Any, Any], where: str, depth: int, redact: Redact | None
) -> dict[str, object]:
    if MARK in value or not all(type(key) is str and _is_plain(key) for key in value):
        return _mark_pairs(value, where, depth, redact)
    marked: dict[str, object] = {}
    for key, item in value.items():
        plain = redact is None and type(item) is str and item.isascii()
        marked[key] = item if plain else _mark(item, f"{where}.{key}", depth, redact)
    return marked


def _mark_pairs(
    value: dict[Any, Any], where: str, depth: int, redact: Redact | None
) -> dict[str, object]:
    pairs = [
        [_mark(key, f"{where} key", depth, None), _mark(item, where, depth, redact)]
        for key, item in value.items()
    ]
    return _marked("dict", pairs)


def _mark_text(text: str) -> object:
    if _is_plain(text):
        return text
    return _marked("str", base64.b64encode(text.encode("utf-8", "surrogatepass")).decode())


def _is_plain(text: str) -> bool:
    """Whether it is valid, and cannot be taken for what stands in for a blob."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return stand_in.BEGIN not in text


def _odd(raw: msgspec.Raw) -> bool:
    """Whether JSON of others may hold such a text."""
    found = bytes(raw)
    return stand_in.BEGIN_BYTES in found or _ESCAPED.search(found) is not None


def _marked(kind: str, value: object) -> dict[str, object]:
    return {MARK: kind, "value": value}


def _unmark(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmark(item) for item in value]
    if not isinstance(value, dict):
        return value
    if MARK not in value:
        return {key: _unmark(item) for key, item in value.items()}
    try:
        return _resolve(value)
    except (ValueError, TypeError):  # not made by us: shown raw
        return value


def _resolve(mark: dict[str, Any]) -> Any:
    match mark:
        case {"$flightlog": "float", "value": str(text)}:
            return float(text)
        case {"$flightlog": "int", "value": str(text)}:
            return int(text, 0)
        case {"$flightlog": "bytes", "value": str(text)}:
            return base64.b64decode(text, validate=True)
        case {"$flightlog": "str", "value": str(text)}:
            return base64.b64decode(text, validate=True).decode("utf-8", "surrogatepass")
        case {"$flightlog": "dict", "value": list(pairs)}:
            return {_as_key(_unmark(key)): _unmark(item) for key, item in pairs}
        case {"$flightlog": "blob", "value": dict(said)}:
            return msgspec.convert(said, Blob)
        case _:
            return mark  # a kind of a later version: shown raw


def _as_key(value: Any) -> Any:
    return tuple(_as_key(item) for item in value) if isinstance(value, list) else value
