"""Events that one message cannot hold: shortened in place, and whole, in pieces, at the end."""

from typing import Any

import msgspec

from flightlog.wire import carry

LIMIT = 1_000_000  # bytes of a payload: NATS' default message limit, with room for the event around
PIECE = 600_000  # bytes of a payload in one piece; base64 makes them 800,000
THRESHOLDS = (65_536, 4_096, 256)  # longest text that stays, tried in turn
HEAD = 200  # characters that stay of a text that is cut
NOTE = "left out by the import: too large for one message"


def shorten(raw: msgspec.Raw, *, limit: int) -> msgspec.Raw:
    """The payload with its longest texts and images cut until it has at most `limit` bytes.

    What consists of very many short values may stay larger; then the writer refuses it.
    """
    shorter = raw
    for longest in THRESHOLDS:
        if len(bytes(shorter)) > limit:
            shorter = msgspec.Raw(msgspec.json.encode(_cut(msgspec.json.decode(raw), longest)))
    return shorter


def pieces(raw: msgspec.Raw) -> list[bytes]:
    """The payload's bytes in order; joined they are the payload."""
    whole = bytes(raw)
    return [whole[at : at + PIECE] for at in range(0, len(whole), PIECE)]


def _cut(value: Any, longest: int) -> Any:
    match value:
        case str() if len(value) > longest:
            return f"{value[:HEAD]} [{len(value) - HEAD} characters {NOTE}]"
        case {carry.MARK: _, "value": str(text)} if len(text) > longest:
            return f"[{len(text)} characters {NOTE}]"
        case {"type": "image" | "document" as kind, "source": {"data": str(data)}} if (
            len(data) > longest
        ):
            return {"type": "text", "text": f"[{kind} of {len(data)} characters {NOTE}]"}
        case dict():
            return {name: _cut(item, longest) for name, item in value.items()}
        case list():
            return [_cut(item, longest) for item in value]
        case _:
            return value
