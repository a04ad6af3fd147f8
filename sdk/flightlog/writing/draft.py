"""What is to be appended: an event that has no seq yet."""

from msgspec import Raw, Struct

from flightlog import event as events
from flightlog.event import Event

_ENVELOPE = 512  # bytes of an event beside its payload, at most
_GROWTH = 128  # bytes that a longer id adds to a copy, at most


class Place(Struct, frozen=True):
    """Where an event will stand: under which id, at which seq, behind the event of that digest."""

    session: str
    seq: int
    prev: str | None
    harness_version: str
    now: str


class Draft(Struct, frozen=True):
    """An event that has no seq yet. `parent_seq` None means: answers the event before it.

    `ts` None means: now, when it leaves. `joined`: stored with the draft behind it, or not at all.
    """

    type: str
    payload: Raw
    parent_seq: int | None = None
    traceparent: str | None = None
    ts: str | None = None
    joined: bool = False

    @property
    def size(self) -> int:
        """Bytes it will need, an upper bound."""
        return len(self.payload) + _ENVELOPE

    def at(self, place: Place) -> Event:
        """The event that it becomes there."""
        return events.compose(
            session_id=place.session,
            seq=place.seq,
            type=self.type,
            payload=self.payload,
            prev=place.prev,
            parent_seq=self.parent_seq if self.parent_seq is not None else place.seq - 1 or None,
            harness_version=place.harness_version,
            ts=self.ts or place.now,
        )


class Copy(Struct, frozen=True):
    """An event of another session, to be stored again under this one's id and chain."""

    source: Event

    joined = False
    traceparent = None

    @property
    def type(self) -> str:
        """The source's type."""
        return self.source.type

    @property
    def payload(self) -> Raw:
        """The source's payload."""
        return self.source.raw

    @property
    def size(self) -> int:
        """Bytes it will need, an upper bound."""
        return len(self.source.body) + _GROWTH

    def at(self, place: Place) -> Event:
        """The copy there; its seq, time and version are the source's."""
        return events.rechain(self.source.body, session_id=place.session, prev=place.prev)


Offered = Draft | Copy
