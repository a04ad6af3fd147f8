"""A stored state at some seq: a cache of the log, believed only if its checksum is right."""

import hashlib
from typing import Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct

from flightlog import state as sessions
from flightlog.event import Event
from flightlog.state import SessionState

S = TypeVar("S")


class Projection(Protocol[S]):
    """What folds a log: pure, total over events it does not know, the same bytes everywhere.

    A change of what `apply` computes or `encode` writes is a new `version`: snapshots of another
    one are not read.
    """

    @property
    def name(self) -> str:
        """Its name in snapshots and keys."""
        ...

    @property
    def version(self) -> int:
        """The version of its rules."""
        ...

    def initial(self) -> S:
        """The state of an empty log."""
        ...

    def apply(self, state: S, event: Event) -> S:
        """The state after the event; the same state for an event that is in it already."""
        ...

    def encode(self, state: S) -> bytes:
        """The state as bytes."""
        ...

    def decode(self, raw: bytes) -> S:
        """Read what `encode` wrote."""
        ...


class _Session:
    """The default projection: `flightlog.state`."""

    name = "session"
    version = 1

    def initial(self) -> SessionState:
        return sessions.initial()

    def apply(self, state: SessionState, event: Event) -> SessionState:
        return sessions.apply(state, event)

    def encode(self, state: SessionState) -> bytes:
        return sessions.encode(state)

    def decode(self, raw: bytes) -> SessionState:
        return sessions.decode(raw)


SESSION: Projection[SessionState] = _Session()


class Snapshot(Struct, frozen=True, kw_only=True):
    """A state, and where in the log it stands.

    `schema` is the wire version of the events, `sequence` the stream sequence of the last event and
    `part` where that lies, `read_to` the last message read, `writers` every change of writer.
    """

    projection: str
    version: int
    schema: int
    seq: int
    sequence: int
    part: Literal["base", "live"]
    read_to: int
    digest: str
    writers: tuple[tuple[int, int], ...] = ()
    state: bytes


class _Header(Struct, frozen=True, kw_only=True):
    projection: str
    version: int
    schema: int
    seq: int
    sequence: int
    part: Literal["base", "live"]
    read_to: int
    digest: str
    writers: tuple[tuple[int, int], ...] = ()
    checksum: str = ""


_encode = msgspec.json.Encoder().encode
_header = msgspec.json.Decoder(_Header)


def write(snapshot: Snapshot) -> bytes:
    """The snapshot as stores keep it: a header line of JSON, then the state."""
    fields = msgspec.structs.asdict(snapshot)
    state: bytes = fields.pop("state")
    head = _Header(**fields)
    return _encode(msgspec.structs.replace(head, checksum=_checksum(head, state))) + b"\n" + state


def read(value: bytes) -> Snapshot | None:
    """The snapshot, or None for one that is cut, changed or was never one."""
    first, found, state = value.partition(b"\n")
    try:
        head = _header.decode(first)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    fields = msgspec.structs.asdict(head)
    checksum = fields.pop("checksum")
    if not found or checksum != _checksum(_Header(**fields), state):
        return None
    return Snapshot(**fields, state=state)


def header(value: bytes) -> bytes:
    """The header line: what a store compares before it replaces the value."""
    return value.partition(b"\n")[0]


def _checksum(head: _Header, state: bytes) -> str:
    return hashlib.sha256(_encode(head) + b"\n" + state).hexdigest()
