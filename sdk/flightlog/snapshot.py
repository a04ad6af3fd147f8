"""A stored state at some seq: a cache of the log, believed only if its checksum is right."""

import hashlib
from collections.abc import Callable
from typing import Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct

from flightlog import state as sessions
from flightlog.cache import piece, session_cut
from flightlog.cache.cut import Cut
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


class Pieced(Protocol[S]):
    """What a projection has beside the rest to let the snapshots of a session share pieces."""

    def cut(self, state: S) -> Cut:
        """The state in pieces: equal states give equal pieces, a changed one few new ones."""
        ...

    def join(self, cut: Cut) -> S:
        """The state that was cut."""
        ...


class _Session:
    """The default projection: `flightlog.state`."""

    name = "session"
    version = 4

    def initial(self) -> SessionState:
        return sessions.initial()

    def apply(self, state: SessionState, event: Event) -> SessionState:
        return sessions.apply(state, event)

    def encode(self, state: SessionState) -> bytes:
        return sessions.encode(state)

    def decode(self, raw: bytes) -> SessionState:
        return sessions.decode(raw)

    def cut(self, state: SessionState) -> Cut:
        return session_cut.cut(state)

    def join(self, cut: Cut) -> SessionState:
        return session_cut.join(cut)


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
    cut: Cut


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
    pieces: tuple[str, ...] = ()
    checksum: str = ""


_encode = msgspec.json.Encoder().encode
_header = msgspec.json.Decoder(_Header)


def cut(projection: Projection[S], state: S) -> Cut:
    """The state as snapshots hold it: in pieces if the projection can, else as one."""
    pieced: Callable[[S], Cut] | None = getattr(projection, "cut", None)
    return Cut(projection.encode(state)) if pieced is None else pieced(state)


def join(projection: Projection[S], cut: Cut) -> S:
    """The state that was cut. Raises whatever the projection does for one that does not fit."""
    pieced: Callable[[Cut], S] | None = getattr(projection, "join", None)
    return projection.decode(cut.state) if pieced is None else pieced(cut)


def write(snapshot: Snapshot) -> bytes:
    """The snapshot's head, as stores keep it: a header line of JSON, then the packed state."""
    fields = msgspec.structs.asdict(snapshot)
    cut: Cut = fields.pop("cut")
    head = _Header(**fields, pieces=cut.roots)
    checked = msgspec.structs.replace(head, checksum=_checksum(head, cut.state))
    return _encode(checked) + b"\n" + piece.pack(cut.state)


def read(value: bytes) -> Snapshot | None:
    """The snapshot without its pieces, or None for a head that is cut, changed or was never one."""
    first, found, packed = value.partition(b"\n")
    try:
        head = _header.decode(first)
        state = piece.unpack(packed)
    except (ValueError, RecursionError):
        return None
    fields = msgspec.structs.asdict(head)
    checksum, roots = fields.pop("checksum"), fields.pop("pieces")
    if not found or checksum != _checksum(msgspec.structs.replace(head, checksum=""), state):
        return None
    return Snapshot(**fields, cut=Cut(state, roots))


def header(value: bytes) -> bytes:
    """The header line: what a store compares before it replaces the value."""
    return value.partition(b"\n")[0]


def _checksum(head: _Header, state: bytes) -> str:
    return hashlib.sha256(_encode(head) + b"\n" + state).hexdigest()
