"""What the broker answers to an append, read from its publish ack (DESIGN section 4, "Answers")."""

import msgspec
from msgspec import Struct

# Error codes of nats-server 2.15; each row is pinned by tests/contract.
_WRONG_LAST_SEQUENCE = 10071
_STORE_FAILED = 10077  # with "maximum ...": the stream is full; otherwise nothing is known
_NO_ROOM = frozenset({10002, 10023, 10047})  # of the account, of the server, of the storage
_TOO_LARGE = 10054
_BATCH_REFUSED = frozenset({10176, 10210, 10211})


class Acked(Struct, frozen=True):
    """Stored and on disk; `sequence` is that of the last message of the group."""

    stream: str
    sequence: int


class Conflict(Struct, frozen=True):
    """The expectation did not hold. `last` is what the broker named, if it did."""

    last: int | None


class Full(Struct, frozen=True):
    """The stream is at its limit; nothing is stored."""

    stream: str


class Oversized(Struct, frozen=True):
    """The message is over the stream's limit; nothing is stored."""

    limit: int


class Busy(Struct, frozen=True):
    """Too many open batches; nothing of this one is stored."""


class Unclear(Struct, frozen=True):
    """No answer, or one that does not say whether anything was stored."""

    why: str


Answer = Acked | Conflict | Full | Oversized | Busy | Unclear


class _ApiError(Struct):
    err_code: int = 0
    description: str = ""


class _PubAck(Struct):
    stream: str = ""
    seq: int = 0
    error: _ApiError | None = None


_decode = msgspec.json.Decoder(_PubAck).decode


def read(raw: bytes, *, stream: str, limit: int) -> Answer:
    """Tell what an ack means. `stream` and `limit` are what a refusal is reported with."""
    try:
        ack = _decode(raw)
    except msgspec.MsgspecError:
        return Unclear("the answer is no publish ack")
    if ack.error is not None:
        return _refusal(ack.error, stream, limit)
    if not ack.seq:
        return Unclear("the answer names no sequence")
    return Acked(ack.stream, ack.seq)


def _refusal(error: _ApiError, stream: str, limit: int) -> Answer:
    code, text = error.err_code, error.description
    if code == _WRONG_LAST_SEQUENCE:
        last = text.rsplit(":", 1)[-1].strip()
        return Conflict(int(last) if last.isdigit() else None)
    if code in _NO_ROOM or (code == _STORE_FAILED and "maximum" in text):
        return Full(stream)
    if code == _TOO_LARGE:
        return Oversized(limit)
    if code in _BATCH_REFUSED:
        return Busy()
    return Unclear(f"error {code}")
