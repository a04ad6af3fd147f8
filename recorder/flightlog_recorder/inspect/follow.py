"""Following a session: its history, then what comes, each event once and in order."""

from collections.abc import AsyncIterator

from msgspec import Struct

from flightlog.bus.protocol import Bus
from flightlog.event import Event
from flightlog.reading.chain import Branch, Pin
from flightlog.reading.once import Presence, Reading, Unexplained
from flightlog.reading.reader import Patience


class Rewound(Struct, frozen=True):
    """What was read after seq `to` was a losing writer's: the session goes on from there."""

    to: int


class Following:
    """A place in a session's log. `more` reads on from it; the log alone says what is next."""

    def __init__(self, bus: Bus, tenant: str, session: str) -> None:
        self._bus, self._tenant, self.session = bus, tenant, session
        self._pins: tuple[Pin, ...] = ()
        self._reading = Reading(bus, tenant, session)
        self._patience = Patience()
        self.seq = 0

    @property
    def presence(self) -> Presence:
        """What the log is, as far as it was read."""
        return self._reading.presence

    async def more(self) -> AsyncIterator[list[Event] | Rewound]:
        """What is behind the last event that was yielded, page by page; may be asked for ever.

        Raises `LogCorrupt` behind the last good event, `BusUnavailable` in time. After either, the
        place is kept: asking again goes on from there.
        """
        while True:
            try:
                async for batch in self._reading.batches():
                    if fresh := [event for event in batch if event.seq > self.seq]:
                        self.seq = fresh[-1].seq
                        yield fresh
            except Branch as branch:
                self._again(branch.pin)
                if branch.pin.seq <= self.seq:
                    self.seq = branch.pin.seq - 1
                    yield Rewound(self.seq)
            except Unexplained as exc:
                await self._patience.doubt(self._bus, self._reading, exc.gap)
                self._again()
            else:
                self._patience = Patience()
                return

    def _again(self, *pins: Pin) -> None:
        self._pins += pins
        self._reading = Reading(self._bus, self._tenant, self.session, pins=self._pins)
