"""Text that stands in for a blob where a provider's message is made of it, until it is at hand.

The views take it for the text that it stands for. It begins and ends with noncharacters, which
`carry` lets no text of others hold, and says how deep in JSON texts it lies, as it is escaped once
for each of them, and in which form: `t` a text, `j` a value's JSON text, `v` a value (all of a text
stands for it), `b` blocks of text (the text of one stands for them).
"""

import re
from collections.abc import Callable, Iterator
from typing import Literal, cast

import msgspec

from flightlog.wire.chunk import Blob, Kind

Form = Literal["t", "j", "v", "b"]

BEGIN, END = "\ufdd0", "\ufdd1"
BEGIN_BYTES = BEGIN.encode()
_DEEPEST = 9  # texts in texts: there are 2 ** 9 backslashes before a quote by then
_FOUND = re.compile(
    rb"\xef\xb7\x90blob:([tjvb])(\d{1,2}):(\d{1,10}):([0-9a-f]{64}):([0-9a-f]{64})?\xef\xb7\x91"
)
_LEVEL = re.compile("\ufdd0blob:([tjvb])([0-9]{1,2}):")
_WHOLE = re.compile("\ufdd0blob:[tjv]1:[0-9]{1,10}:[0-9a-f]{64}:(?:[0-9a-f]{64})?\ufdd1")
_FORMS: dict[Kind, Form] = {"text": "t", "json": "v", "items": "b"}
_KINDS: dict[Form, Kind] = {"t": "text", "j": "json", "v": "json", "b": "items"}
_encode = msgspec.json.Encoder().encode


def of(blob: Blob) -> str:
    """What stands in for a text, a value, or the text of a block for several.

    A text that begins blank is blank, and its beginning is enough.
    """
    if blob.head.isspace():
        return blob.head
    form = _FORMS.get(blob.kind, "t")
    return f"{blob.head}{BEGIN}blob:{form}1:{blob.size}:{blob.digest}:{blob.index or ''}{END}"


def is_value(text: object) -> bool:
    """Whether it stands in for a value."""
    return isinstance(text, str) and text[6:7] == "v" and _WHOLE.fullmatch(text) is not None


def texted(text: str) -> str:
    """What stands in for a value, as standing in for its JSON text; other text as it is."""
    return _formed(text, "j") if is_value(text) else text


def valued(text: str) -> str | None:
    """What stands in for the value of which this is the JSON text; None unless this stands in."""
    return _formed(text, "v") if BEGIN in text and _WHOLE.fullmatch(text) else None


def _formed(text: str, form: Form) -> str:
    return f"{text[:6]}{form}{text[7:]}"


def nested(text: str) -> str:
    """The JSON text of a value, as it stands in one more text."""
    return _LEVEL.sub(_deeper, text) if BEGIN in text else text


def unnested(text: str) -> str:
    """A JSON text that is about to be read."""
    return _LEVEL.sub(_shallower, text) if BEGIN in text else text


def _deeper(found: re.Match[str]) -> str:
    return f"{BEGIN}blob:{found[1]}{int(found[2]) + 1}:"


def _shallower(found: re.Match[str]) -> str:
    return f"{BEGIN}blob:{found[1]}{max(1, int(found[2]) - 1)}:"


def blobs(line: bytes) -> list[Blob]:
    """What is stood in for in JSON."""
    if BEGIN_BYTES not in line:
        return []
    return [_blob(found) for found in _FOUND.finditer(line)]


def _form(found: re.Match[bytes]) -> Form:
    return cast("Form", found[1].decode())


def _blob(found: re.Match[bytes]) -> Blob:
    return Blob(
        digest=found[4].decode(),
        size=int(found[3]),
        kind=_KINDS[_form(found)],
        index=found[5].decode() if found[5] else None,
    )


def readable(text: str) -> str:
    """The text for a person, who is told what is left out."""
    return _WHOLE.sub(_named, text) if BEGIN in text else text


def _named(found: re.Match[str]) -> str:
    return f"… {blobs(found[0].encode())[0]}"


def made_whole(line: bytes, text_of: Callable[[Blob, Form], str]) -> bytes:
    """The JSON with each text and value in its place, byte for byte as if it had always been there.

    `text_of` gives a text as it is, and JSON for the other forms; that of blocks has no brackets.
    """
    return b"".join(_parts(line, text_of)) if BEGIN_BYTES in line else line


def _parts(line: bytes, text_of: Callable[[Blob, Form], str]) -> Iterator[bytes]:
    done = 0
    for found in _FOUND.finditer(line):
        form, level = _form(found), min(int(found[2]), _DEEPEST)
        before, after = _around(form, level, line, found.span())
        text = text_of(_blob(found), form)
        for _ in range(level if form in "tj" else level - 1):
            escaped = _encode(text)[1:-1]
            text = escaped.decode()
        yield line[done : found.start() - before]
        yield text.encode()
        done = found.end() + after
    yield line[done:]


def _around(form: Form, level: int, line: bytes, span: tuple[int, int]) -> tuple[int, int]:
    """The bytes before and after it that go with it: quotes, or the block."""
    if form in "tj":
        return 0, 0
    quote = b"\\" * (2 ** (level - 1) - 1) + b'"'
    head, tail = quote, quote
    if form == "b":
        head = b'{"type":"text","text":"'.replace(b'"', quote)
        tail = quote + b"}"
    begin, end = span
    fits = line.endswith(head, 0, begin) and line.startswith(tail, end)
    return (len(head), len(tail)) if fits else (0, 0)
