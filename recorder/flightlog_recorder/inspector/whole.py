"""All of a value, or of a part of it, that the page asks for: what lies in blobs in its place."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from flightlog import FlightlogError, Log
from flightlog.blobs import held
from flightlog.wire.chunk import Blob
from flightlog_recorder.inspector import parts
from flightlog_recorder.replay import picture

MOST = 64 << 20  # bytes of blobs: what a browser's tab bears as text


class TooMuch(FlightlogError):
    """What was asked for is more than a page can show; there is another way to it."""

    def __init__(self, session: str, size: int) -> None:
        super().__init__(
            f"this is {size / 1_000_000:,.0f} MB, more than a page can show:"
            f" flightlog export {session} has all of it"
        )


async def text(log: Log, session: str, value: Any, path: Sequence[str | int]) -> str:
    """The part as text. Raises `NoSuchPart`, `TooMuch`, `BlobMissing` and `BlobCorrupt`."""
    part = picture.whole(parts.part(value, path))
    raw = Raw(msgspec.json.encode(part, enc_hook=repr))
    wanted = held.references(raw)
    if (size := sum(blob.size for blob in wanted)) > MOST:
        raise TooMuch(session, size)
    if _is_attached(part, wanted):
        return await _attached(log, session, wanted[0])
    if held.inlined(wanted):
        part = msgspec.json.decode(await log.filled(session, raw))
    return parts.text(part)


def _is_attached(part: Any, wanted: list[Blob]) -> bool:
    """Whether the part is nothing but what was attached."""
    match part:
        case {"$flightlog": "blob"}:
            return [blob.kind for blob in wanted] == ["bytes"]
        case _:
            return False


async def _attached(log: Log, session: str, blob: Blob) -> str:
    """Bytes as text; those that are none as escapes."""
    pieces = [piece async for piece in log.blob(session, blob)]
    return b"".join(pieces).decode("utf-8", "backslashreplace")
