"""Text that stands in for a blob where a provider's message is made of it, until it is at hand.

The views take it for the text that it stands for. It begins and ends with noncharacters, which
`carry` lets no text of others hold, and says how deep in JSON texts it lies, as it is escaped once
for each of them.
"""

import re
from collections.abc import Callable

import msgspec

from flightlog.wire.chunk import Blob

BEGIN, END = "\ufdd0", "\ufdd1"
BEGIN_BYTES = BEGIN.encode()
_FOUND = re.compile(
    rb"\xef\xb7\x90blob:([tj])(\d{1,2}):(\d{1,10}):([0-9a-f]{64}):([0-9a-f]{64})?\xef\xb7\x91"
)
_LEVEL = re.compile("\ufdd0blob:([tj])([0-9]{1,2}):")
_encode = msgspec.json.Encoder().encode


def of(blob: Blob) -> str:
    """What stands in for a text, or for a value's JSON text."""
    letter = "j" if blob.kind == "json" else "t"
    return f"{blob.head}{BEGIN}blob:{letter}1:{blob.size}:{blob.digest}:{blob.index or ''}{END}"


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


def _blob(found: re.Match[bytes]) -> Blob:
    return Blob(
        digest=found[4].decode(),
        size=int(found[3]),
        kind="json" if found[1] == b"j" else "text",
        index=found[5].decode() if found[5] else None,
    )


def made_whole(line: bytes, text_of: Callable[[Blob], str]) -> bytes:
    """The JSON with each text in its place, byte for byte as if it had always been there."""
    if BEGIN_BYTES not in line:
        return line

    def written(found: re.Match[bytes]) -> bytes:
        text = text_of(_blob(found))
        for _ in range(int(found[2])):
            escaped = _encode(text)[1:-1]
            text = escaped.decode()
        return text.encode()

    return _FOUND.sub(written, line)
