"""A session folded from its first event, with its state kept at the places that were asked for."""

from msgspec import Struct
from msgspec.structs import replace

from flightlog.blobs import held
from flightlog.event import Event
from flightlog.names import Names
from flightlog.snapshot import SESSION
from flightlog.state import SessionState
from flightlog.wire import carry
from flightlog.wire.chunk import Blob


class Place(Struct, frozen=True):
    """The state after an event, and that event's place in the stream."""

    state: SessionState
    sequence: int


class Referred(Struct, frozen=True):
    """A blob as references say it is, and the first event that has one."""

    seq: int
    blob: Blob


class Replayed(Struct, frozen=True):
    """The state now, and at the wanted seqs that were passed; every blob that was referred to."""

    state: SessionState
    places: dict[int, Place] = {}
    blobs: Names[Referred] = Names()


def referred(known: Names[Referred], event: Event) -> Names[Referred]:
    """With the blobs that the event refers to."""
    if not carry.is_marked(event.body):
        return known
    for blob in held.references(event.raw):
        said = f"{blob.digest}:{blob.index or ''}:{blob.size}:{blob.kind}"
        known = known.add(said, Referred(event.seq, blob))
    return known


class Replay:
    """A projection that remembers the states at some seqs; made for one reading, never stored."""

    name = "replay"
    version = 1

    def __init__(self, wanted: frozenset[int]) -> None:
        self._wanted = wanted

    def initial(self) -> Replayed:
        """The state of an empty log."""
        return Replayed(SESSION.initial())

    def apply(self, state: Replayed, event: Event) -> Replayed:
        """The state after the event."""
        now = SESSION.apply(state.state, event)
        state = replace(state, state=now, blobs=referred(state.blobs, event))
        if event.seq not in self._wanted:
            return state
        return replace(state, places={**state.places, event.seq: Place(now, event.sequence)})

    def encode(self, state: Replayed) -> bytes:
        """The state as the session's projection writes it."""
        return SESSION.encode(state.state)

    def decode(self, raw: bytes) -> Replayed:
        """Read what `encode` wrote."""
        return Replayed(SESSION.decode(raw))
