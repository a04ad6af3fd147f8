"""A session folded from its first event, with its state kept at the places that were asked for."""

from msgspec import Struct
from msgspec.structs import replace

from flightlog.event import Event
from flightlog.snapshot import SESSION
from flightlog.state import SessionState


class Place(Struct, frozen=True):
    """The state after an event, and that event's place in the stream."""

    state: SessionState
    sequence: int


class Replayed(Struct, frozen=True):
    """The state now, and at the wanted seqs that were passed."""

    state: SessionState
    places: dict[int, Place] = {}


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
        if event.seq not in self._wanted:
            return replace(state, state=now)
        return Replayed(now, {**state.places, event.seq: Place(now, event.sequence)})

    def encode(self, state: Replayed) -> bytes:
        """The state as the session's projection writes it."""
        return SESSION.encode(state.state)

    def decode(self, raw: bytes) -> Replayed:
        """Read what `encode` wrote."""
        return Replayed(SESSION.decode(raw))
