"""One event: what happened in a session, as the bytes that are stored and chained."""

import functools
import hashlib
from datetime import UTC, datetime
from typing import Any

import msgspec

from flightlog import clock
from flightlog.errors import InvalidEvent
from flightlog.wire import carry

WIRE_VERSION = 1


class _Wire(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The JSON object of the wire contract, in its written order."""

    v: int
    session_id: str
    seq: int
    ts: str
    type: str
    payload: msgspec.Raw
    parent_seq: int | None
    harness_version: str
    prev: str | None


class _ControlWire(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    v: int
    session_id: str
    ts: str
    type: str
    payload: msgspec.Raw


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One thing that happened in a session; written once, never changed.

    `seq` is dense from 1 and is the only order; `ts` is for people. `body` is the stored bytes,
    `digest` their hex SHA-256, `sequence` the stream sequence (0 when read from a file).
    """

    v: int
    session_id: str
    seq: int
    ts: str
    type: str
    raw: msgspec.Raw
    parent_seq: int | None
    harness_version: str
    prev: str | None
    body: bytes
    digest: str
    sequence: int = 0

    @property
    def payload(self) -> Any:
        """The payload as Python values, marks resolved; decoded anew at each access."""
        return carry.unpack(self.raw)


class Control(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message that is no event: the seal of a `base`, or the tombstone of a purged session."""

    session_id: str
    ts: str
    type: str
    raw: msgspec.Raw
    body: bytes
    sequence: int = 0

    @property
    def payload(self) -> Any:
        """The payload as Python values."""
        return carry.unpack(self.raw)


_encode = msgspec.json.Encoder().encode
_wire = msgspec.json.Decoder(_Wire)
_control = msgspec.json.Decoder(_ControlWire)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def now() -> str:
    """The time now as the wire writes it: UTC, microseconds, `Z`."""
    seconds, rest = divmod(clock.wall_ns(), 1_000_000_000)
    return f"{_to_the_second(seconds)}.{rest // 1_000:06d}Z"


@functools.lru_cache(maxsize=1)
def _to_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def digest_of(body: bytes) -> str:
    """The hex SHA-256 that the next event's `prev` must equal."""
    return hashlib.sha256(body).hexdigest()


def compose(
    *,
    session_id: str,
    seq: int,
    type: str,
    payload: msgspec.Raw,
    prev: str | None,
    parent_seq: int | None,
    harness_version: str,
    ts: str | None = None,
) -> Event:
    """Make the event that will be stored; its bytes never change from here on."""
    wire = _Wire(
        v=WIRE_VERSION,
        session_id=session_id,
        seq=seq,
        ts=ts or now(),
        type=type,
        payload=payload,
        parent_seq=parent_seq,
        harness_version=harness_version,
        prev=prev,
    )
    return _event(wire, _encode(wire), 0)


def compose_control(*, session_id: str, type: str, payload: object) -> bytes:
    """Make the body of a seal or a tombstone."""
    return _encode(
        _ControlWire(
            v=WIRE_VERSION, session_id=session_id, ts=now(), type=type, payload=carry.pack(payload)
        )
    )


def decode(body: bytes, *, sequence: int = 0) -> Event | Control:
    """Read a stored body. Unknown fields stay in `body`; raises `InvalidEvent`."""
    try:
        return _event(_wire.decode(body), body, sequence)
    except _UNREADABLE as exc:
        return _decode_control(body, sequence, exc)


def _decode_control(body: bytes, sequence: int, cause: Exception) -> Control:
    try:
        wire = _control.decode(body)
    except _UNREADABLE as exc:
        raise InvalidEvent("its fields or its JSON do not fit") from exc
    if wire.type not in ("seal", "tombstone"):
        raise InvalidEvent("it has no seq") from cause
    return Control(
        session_id=wire.session_id,
        ts=wire.ts,
        type=wire.type,
        raw=wire.payload,
        body=body,
        sequence=sequence,
    )


def rechain(body: bytes, *, session_id: str, prev: str | None) -> Event:
    """Copy an event under another session id: all else, unknown fields too, stays as it is."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    fields["session_id"] = msgspec.Raw(_encode(session_id))
    fields["prev"] = msgspec.Raw(_encode(prev))
    copy = decode(_encode(fields))
    if not isinstance(copy, Event):
        raise InvalidEvent("a control message is never copied")
    return copy


def _event(wire: _Wire, body: bytes, sequence: int) -> Event:
    return Event(
        v=wire.v,
        session_id=wire.session_id,
        seq=wire.seq,
        ts=wire.ts,
        type=wire.type,
        raw=wire.payload,
        parent_seq=wire.parent_seq,
        harness_version=wire.harness_version,
        prev=wire.prev,
        body=body,
        digest=digest_of(body),
        sequence=sequence,
    )
