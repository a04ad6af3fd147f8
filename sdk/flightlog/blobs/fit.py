"""Whether a content is of the kind and size that a reference to it says. Pure."""

import msgspec
from msgspec import Raw

from flightlog.errors import InvalidEvent
from flightlog.wire import carry
from flightlog.wire.chunk import Blob

LARGEST = 64 << 20  # bytes of JSON that are held to be looked at; of more the encoding is all
_LONGEST = 4  # bytes of a character

_skim = msgspec.json.Decoder(Raw).decode


def misfit(blob: Blob, content: bytes) -> str | None:
    """Why the content is not what the reference says; None if it is."""
    if len(content) != blob.size:
        return f"it has {len(content)} bytes, the reference says {blob.size}"
    if blob.kind == "bytes":
        return None
    if not _is_text(content):
        return _not(blob)
    return None if blob.kind == "text" or _is_json(content) else _not(blob)


def _not(blob: Blob) -> str:
    what = "text in UTF-8" if blob.kind == "text" else "JSON"
    return f"the reference says {blob.kind}, and it is no {what}"


def _is_text(content: bytes) -> bool:
    try:
        content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _is_json(content: bytes) -> bool:
    try:
        _skim(content)
    except (msgspec.DecodeError, RecursionError):
        return _is_read(content)
    return True


def _is_read(content: bytes) -> bool:
    """Whether it is JSON of others, that a strict reader refuses."""
    try:
        carry.unpack(content)
    except InvalidEvent:
        return False
    return True


class Fit:
    """Judges a content piece by piece; memory is a piece, for JSON up to `LARGEST` bytes."""

    def __init__(self, blob: Blob) -> None:
        self._blob, self._is_broken = blob, False
        self._is_kept = blob.kind in ("json", "items") and blob.size <= LARGEST
        self._rest = bytearray()

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        if self._blob.kind == "bytes" or self._is_broken:
            return
        self._rest += piece
        if not self._is_kept:
            end = _end(self._rest)
            self._is_broken = not _is_text(bytes(self._rest[:end]))
            del self._rest[:end]

    def why(self) -> str | None:
        """Why all of it, which has the right size, is not what the reference says."""
        rest = bytes(self._rest)
        if self._is_broken or not _is_text(rest):
            return _not(self._blob)
        return None if not self._is_kept or _is_json(rest) else _not(self._blob)


def _end(content: bytearray) -> int:
    """Where the last character begins, of which more may come."""
    for back in range(1, min(_LONGEST, len(content)) + 1):
        if content[-back] >= 0xC0:
            return len(content) - back
    return len(content)
