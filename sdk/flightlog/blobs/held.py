"""The contents of blobs that a process has at hand, and putting them back where they belong. Pure.

A state and its snapshots hold references alone. Who opens a session fetches what its context needs.
"""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from flightlog.blobs.fit import misfit
from flightlog.errors import BlobCorrupt, BlobMissing
from flightlog.wire import carry, chunk, stand_in
from flightlog.wire.chunk import Blob
from flightlog.wire.stand_in import Form

_MARK = carry.MARK.encode()
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_items = msgspec.json.Decoder(list[Raw]).decode


class Held(Struct, frozen=True, eq=False):
    """Contents by digest; `damaged` says of those that could not be had whole, why."""

    contents: dict[str, bytes] = {}
    damaged: dict[str, str] = {}
    fitting: set[Blob] = set()  # references that were compared with their content

    def get(self, session: str, blob: Blob) -> bytes:
        """A content. Raises `BlobMissing`, or `BlobCorrupt`, also for one of another kind."""
        if (why := self.damaged.get(blob.digest)) is not None:
            raise BlobCorrupt(session, blob.digest, why)
        if (content := self.contents.get(blob.digest)) is None:
            raise BlobMissing(session, blob.digest)
        if (reference := chunk.content_of(blob)) not in self.fitting:
            if (why := misfit(blob, content)) is not None:
                raise BlobCorrupt(session, blob.digest, why)
            self.fitting.add(reference)
        return content

    def added(self, contents: dict[str, bytes]) -> "Held":
        """With these too."""
        return Held({**self.contents, **contents}, self.damaged, self.fitting)

    def kept(self, digests: set[str]) -> "Held":
        """With these alone."""
        contents = {name: each for name, each in self.contents.items() if name in digests}
        damaged = {name: why for name, why in self.damaged.items() if name in digests}
        return Held(contents, damaged, {each for each in self.fitting if each.digest in digests})


NOTHING = Held()

ContentOf = Callable[[Blob], bytes]


def references(raw: Raw | bytes) -> list[Blob]:
    """The blobs that JSON refers to, in order."""
    found = bytes(raw)
    marked = list(_marked(found)) if _MARK in found else []
    return marked + stand_in.blobs(found)


def _marked(raw: bytes) -> Iterator[Blob]:
    try:
        value = _decode(raw)
    except _UNREADABLE:
        return
    yield from _blobs(value)


def _blobs(value: Any) -> Iterator[Blob]:
    match value:
        case {"$flightlog": "blob"}:
            if (blob := _blob(value)) is not None:
                yield blob
        case dict():
            for item in value.values():
                yield from _blobs(item)
        case list():
            for item in value:
                yield from _blobs(item)
        case _:
            pass


def _blob(mark: dict[str, Any]) -> Blob | None:
    try:
        return msgspec.convert(mark.get("value"), Blob)
    except msgspec.ValidationError:
        return None


def whole(raw: Raw, content_of: ContentOf) -> Raw:
    """The JSON as it was before its texts and values went into blobs."""
    if not inlined(references(raw)):
        return raw
    value = _decode(raw)
    return Raw(_encode(_filled(value, content_of)))


def inlined(blobs: list[Blob]) -> list[Blob]:
    """Those whose content belongs where they are referred to; what was attached stays apart."""
    return [blob for blob in blobs if blob.kind != "bytes"]


def _filled(value: Any, content_of: ContentOf) -> Any:
    match value:
        case {"$flightlog": "blob"}:
            blob = _blob(value)
            return value if blob is None else _in_place(blob, value, content_of)
        case dict():
            return {name: _filled(item, content_of) for name, item in value.items()}
        case list():
            return [each for item in value for each in _filled_items(item, content_of)]
        case str() if stand_in.BEGIN in value:
            return _filled_text(value, content_of)
        case _:
            return value


def _filled_items(item: Any, content_of: ContentOf) -> list[Any]:
    """An item of a list, or those that it stands for."""
    match item:
        case {"type": "text", "text": {"$flightlog": "blob", "value": {"kind": "items"}} as mark}:
            found = _blob(mark)
        case {"$flightlog": "blob", "value": {"kind": "items"}}:
            found = _blob(item)
        case _:
            found = None
    return [_filled(item, content_of)] if found is None else _listed(content_of(found))


def _listed(content: bytes) -> list[Any]:
    try:
        return _items(content)
    except _UNREADABLE:  # no list, or a strict reader refuses it: of another author
        return [Raw(content)]


def _filled_text(text: str, content_of: ContentOf) -> str:
    raw = stand_in.made_whole(_encode(text), lambda blob, _: _text(content_of(blob)))
    whole: str = _decode(raw)
    return whole


def _in_place(blob: Blob, mark: dict[str, Any], content_of: ContentOf) -> Any:
    if blob.kind == "bytes":
        return mark
    content = content_of(blob)
    return carry.pack(blob.head + _text(content)) if blob.kind == "text" else Raw(content)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass")


def shown(content: bytes, form: Form) -> str:
    """What was stood in for, as a provider takes it: a text, or JSON, that of blocks a list's."""
    if form == "t":
        return carry.shown_text(_text(content))
    written = _encode(_shown(content)).decode()
    return written[1:-1] if form == "b" else written


def _shown(content: bytes) -> Any:
    try:
        return carry.shown(content)
    except _UNREADABLE:  # JSON of another author, that a strict reader refuses
        return carry.shown(carry.pack(carry.unpack(content)))


def is_same(known: Raw, value: Raw) -> bool:
    """Whether a value is the one that is known, which may lie in blobs; nothing is fetched."""
    if bytes(known) == bytes(value):
        return True
    if not references(known):
        return False
    try:
        return _equal(_decode(known), _decode(value))
    except _UNREADABLE:
        return False


def _equal(known: Any, value: Any) -> bool:
    match known, value:
        case {"$flightlog": "blob"}, _ if known != value:
            blob = _blob(known)
            return blob is not None and _digest_as(blob, value) == blob.digest
        case dict(), dict():
            if list(known) != list(value):
                return False
            return all(_equal(item, value[name]) for name, item in known.items())
        case list(), list():
            pairs = zip(known, value, strict=False)
            return len(known) == len(value) and all(_equal(a, b) for a, b in pairs)
        case _:
            return type(known) is type(value) and bool(known == value)


def _digest_as(blob: Blob, value: Any) -> str | None:
    """The digest that the value has as such a blob; None for one that has no such form."""
    if blob.kind == "json":
        return chunk.digest_of(_encode(value))
    text = text_of(value)
    if blob.kind != "text" or text is None or not text.startswith(blob.head):
        return None
    return chunk.digest_of(text[len(blob.head) :].encode("utf-8", "surrogatepass"))


def text_of(value: Any) -> str | None:
    """A text as JSON has it, also a marked one; None for what is none."""
    match value:
        case str():
            return value
        case {"$flightlog": "str", "value": str(packed)}:
            try:
                return base64.b64decode(packed, validate=True).decode("utf-8", "surrogatepass")
            except ValueError:
                return None
        case _:
            return None
