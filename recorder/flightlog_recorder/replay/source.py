"""Where a session is read from; its log through the SDK is one such place, a file another."""

from collections.abc import AsyncGenerator
from typing import Protocol

from msgspec import UNSET, Raw, Struct

from flightlog import FlightlogError, Log, LogCorrupt, NoSuchSession, SessionPurged
from flightlog.event import Event
from flightlog.reading.chain import Branch, Head, Pin
from flightlog.reading.once import Reading, Unexplained
from flightlog.reading.reader import Patience, Undecodable, head_of, start
from flightlog.snapshot import SESSION, Snapshot
from flightlog.state import SessionState

START = Head()


class Place(Struct, frozen=True):
    """A known state, and where in the log it stands: reading can go on from here."""

    head: Head
    state: SessionState
    stored: int = 0  # the seq of the snapshot that it comes from


class Opened(Struct, frozen=True):
    """What is known at first: the seq of the last event, places to start at, damage behind it."""

    session: str
    last: int
    places: tuple[Place, ...] = ()
    damage: str | None = None


class Stretch(Struct, frozen=True):
    """Events in a row, and where the log stands behind them."""

    events: list[Event]
    head: Head


class Damage(FlightlogError):
    """The log, or the file, is readable up to event `seq` and no further."""

    def __init__(self, seq: int, text: str) -> None:
        self.seq = seq
        super().__init__(text)


class Rewound(Exception):
    """What was read after seq `to` was a losing writer's: all of it is to be read again."""

    def __init__(self, to: int) -> None:
        self.to = to
        super().__init__(str(to))


class Source(Protocol):
    """Reads one session; two of them read the same bytes to the same events."""

    async def open(self, *, at: int | None = None) -> Opened:
        """See what there is; with `at`, also the stored state that is best to reach that seq."""
        ...

    async def near(self, seq: int) -> Place | None:
        """The nearest place at or before the event whose state is stored."""
        ...

    def stretches(self, head: Head) -> AsyncGenerator[Stretch]:
        """The events behind a place, page by page. Raises `Damage` and `Rewound`."""
        ...

    async def filled(self, state: SessionState) -> SessionState:
        """The state with what of it lies in blobs; a file may not have them."""
        ...

    async def payload(self, event: Event) -> Raw:
        """The event's payload with what of it lies in blobs in its place."""
        ...


class LiveSource:
    """A session's log, read through the SDK."""

    def __init__(self, log: Log, session: str) -> None:
        self._log, self._session = log, session
        self._pins: tuple[Pin, ...] = ()
        self._end: Head | None = None

    async def open(self, *, at: int | None = None) -> Opened:
        """See where the log ends. Raises `NoSuchSession`, `SessionPurged`."""
        try:
            folded = await self._log.fold(self._session, at=at)
        except LogCorrupt as exc:
            return Opened(self._session, exc.seq, damage=str(exc))
        self._end = folded.head
        places = [place] if folded.used and (place := _stored(folded.used)) else []
        if folded.state.seq == folded.head.seq:
            stored = folded.used.seq if folded.used else 0
            places.append(Place(folded.head, folded.state, stored))
        return Opened(self._session, folded.head.seq, tuple(places))

    async def near(self, seq: int) -> Place | None:
        """The last snapshot that is kept there, unless a branch tells that the log is another."""
        if self._end is None or self._pins:
            return None
        found = await self._log.past.near(self._session, seq, end=self._end)
        return None if found is None else _stored(found)

    async def stretches(self, head: Head) -> AsyncGenerator[Stretch]:
        """The events behind a place. A short end is lag, which is waited for."""
        patience = Patience()
        while True:
            reading = self._reading(head)
            try:
                async for batch in reading.batches():
                    head = reading.chain.head
                    yield Stretch(batch, head)
            except Branch as branch:
                self._pins += (branch.pin,)
                raise Rewound(branch.pin.seq - 1) from None
            except Unexplained as exc:
                await self._doubt(patience, reading, exc)
            else:
                self._check(reading)
                return

    async def filled(self, state: SessionState) -> SessionState:
        """The state with what of it lies in blobs."""
        if state.blobs is UNSET:
            return state
        return await self._log.state(self._session, at=state.seq)

    async def payload(self, event: Event) -> Raw:
        """The event's payload, blobs in place. Raises `BlobMissing` and `BlobCorrupt`."""
        return await self._log.whole(event)

    def _reading(self, head: Head) -> Reading:
        log = self._log
        return Reading(log.bus, log.tenant, self._session, head=head, pins=self._pins)

    async def _doubt(self, patience: Patience, reading: Reading, doubted: Unexplained) -> None:
        try:
            await patience.doubt(self._log.bus, reading, doubted.gap)
        except LogCorrupt as exc:
            raise Damage(exc.seq, str(exc)) from None

    def _check(self, reading: Reading) -> None:
        if reading.presence == "purged":
            raise SessionPurged(self._session)
        if reading.presence != "present":
            raise NoSuchSession(self._session)


def _stored(snapshot: Snapshot) -> Place | None:
    try:
        return Place(head_of(snapshot), start(SESSION, snapshot), snapshot.seq)
    except Undecodable:
        return None
