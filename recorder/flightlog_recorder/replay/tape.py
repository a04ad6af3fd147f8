"""A session as a tape: any event, any state. What was passed once is not replayed from zero."""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from msgspec import Raw, Struct

from flightlog import FlightlogError, upcast
from flightlog.event import WIRE_VERSION, Event
from flightlog.snapshot import SESSION
from flightlog.state import SessionState
from flightlog_recorder.replay.places import Places
from flightlog_recorder.replay.source import (
    Damage,
    Opened,
    Place,
    Rewound,
    Source,
    Stretch,
)

FAR = 1_000  # events, a page: from farther away it is better to ask for a stored state
PAGES = 8  # kept with their events and states, so that single steps fold nothing
PAGE_BYTES = 16 << 20  # of their events' bodies: a page is 1 MiB and an event, in a file any size

Test = Callable[[Event], bool | Awaitable[bool]]


class NotThere(FlightlogError):
    """The session has no event with that seq, or none that can be read: it is damaged before."""

    def __init__(self, session: str, seq: int, last: int, damage: str | None = None) -> None:
        self.session, self.seq, self.last = session, seq, last
        why = f"its last is {last}" if damage is None else damage
        super().__init__(f"session {session} has no event {seq}: {why}")


class Looked(Struct, frozen=True):
    """A state, and how it was made: from the snapshot at `stored` (0: from the first event)."""

    state: SessionState
    stored: int

    @property
    def applied(self) -> range:
        """The events that were applied to the snapshot."""
        return range(self.stored + 1, self.state.seq + 1)


class Tape:
    """Reads a session back and forth. Memory: some pages, a context, and `places.BYTES`."""

    def __init__(self, source: Source, opened: Opened) -> None:
        self._source = source
        self.session, self.last, self.damage = opened.session, opened.last, opened.damage
        self._places = Places()
        for place in opened.places:
            self._places.keep(place)
        self._pages: deque[_Page] = deque()

    async def event(self, seq: int) -> Event:
        """The event. Raises `NotThere`."""
        page = await self._page(seq)
        return page.events[seq - page.first]

    def is_at_hand(self, seq: int) -> bool:
        """Whether the event is on a page that is kept: nothing is read for it."""
        return self._held(seq) is not None

    async def state(self, seq: int) -> Looked:
        """The state after the event; 0 is before the first. Raises `NotThere`."""
        if self._held(seq) is None and (place := await self._nearest(seq)).head.seq == seq:
            return Looked(place.state, place.stored)
        page = await self._page(seq)
        return Looked(page.states[seq - page.first], page.stored)

    async def filled(self, seq: int) -> SessionState:
        """The state after the event, with what of it lies in blobs."""
        return await self._source.filled((await self.state(seq)).state)

    async def payload(self, seq: int) -> Raw:
        """The event's payload, with what of it lies in blobs."""
        return await self.whole(await self.event(seq))

    async def whole(self, event: Event) -> Raw:
        """An event's payload, with what of it lies in blobs."""
        return await self._source.payload(event)

    async def events(self, *, after: int = 0, until: int | None = None) -> AsyncGenerator[Event]:
        """The events from `after` + 1 to `until`."""
        last = after
        while True:
            try:
                async with aclosing(self._stretches(last)) as stretches:
                    async for stretch in stretches:
                        for event in stretch.events:
                            if until is not None and event.seq > until:
                                return
                            if event.seq > last:
                                yield event
                                last = event.seq
            except Rewound as rewound:
                last = max(after, min(last, rewound.to))
            else:
                return

    async def next(self, seq: int, test: Test) -> int | None:
        """The first event behind `seq` that passes the test."""
        async with aclosing(self.events(after=seq)) as events:
            async for event in events:
                if await _passes(test, event):
                    return event.seq
        return None

    async def previous(self, seq: int, test: Test) -> int | None:
        """The last event before `seq` that passes the test; read backwards, place by place."""
        until = min(seq, self.last + 1) - 1
        while until > 0:
            after, found = (await self._nearest(until - 1)).head.seq, None
            async for event in self.events(after=after, until=until):
                if await _passes(test, event):
                    found = event.seq
            if found is not None:
                return found
            until = after
        return None

    async def grow(self) -> bool:
        """Look behind the last event; whether there are more, or others."""
        before, rewound = self.last, False
        while True:
            try:
                async with aclosing(self._stretches(self.last)) as stretches:
                    async for _ in stretches:
                        pass
            except Rewound:
                rewound = True
            else:
                return rewound or self.last > before

    async def _page(self, seq: int) -> "_Page":
        while (page := self._held(seq)) is None:
            if not 0 < seq <= self.last:
                raise NotThere(self.session, seq, self.last, self.damage)
            try:
                async with aclosing(self._stretches(seq - 1)) as stretches:
                    async for _ in stretches:
                        if self._held(seq) is not None:
                            break
                    else:
                        self.last = min(self.last, seq - 1)
            except Rewound:
                await self.grow()
        return page

    def _held(self, seq: int) -> "_Page | None":
        for page in reversed(self._pages):
            if page.first <= seq < page.first + len(page.events):
                return page
        return None

    def _hold(self, page: "_Page") -> None:
        pages = self._pages
        pages.append(page)
        while len(pages) > PAGES or (len(pages) > 1 and sum(p.size for p in pages) > PAGE_BYTES):
            pages.popleft()

    async def _nearest(self, seq: int) -> Place:
        """The nearest place at or before the seq, known or stored."""
        known = self._places.before(seq)
        if min(seq, self.last) - known.head.seq < FAR:
            return known
        found = await self._source.near(seq)
        if found is None or found.head.seq <= known.head.seq:
            return known
        self._places.keep(found)
        return found

    async def _stretches(self, after: int) -> AsyncGenerator[Stretch]:
        """Read and fold from the nearest place; ends where the log does, or is damaged."""
        place = await self._nearest(after)
        state = place.state
        try:
            async with aclosing(self._source.stretches(place.head)) as stretches:
                async for stretch in stretches:
                    page = _folded(state, stretch.events, place.stored)
                    state = page.states[-1]
                    self._hold(page)
                    self._places.keep(Place(stretch.head, state, place.stored))
                    self.last = max(self.last, stretch.head.seq)
                    yield stretch
        except Damage as damage:
            self.last, self.damage = damage.seq, str(damage)
        except Rewound as rewound:
            self._places.forget()
            self._pages.clear()
            self.last = rewound.to
            raise


async def _passes(test: Test, event: Event) -> bool:
    found = test(event)
    return found if isinstance(found, bool) else await found


class _Page(Struct, frozen=True):
    first: int
    events: list[Event]
    states: list[SessionState]
    stored: int
    size: int


def _folded(state: SessionState, events: list[Event], stored: int) -> _Page:
    states: list[SessionState] = []
    for event in events:
        lifted = event if event.v == WIRE_VERSION else upcast.lift(event)
        state = SESSION.apply(state, lifted)
        states.append(state)
    size = sum(len(event.body) for event in events)
    return _Page(events[0].seq, events, states, stored, size)


async def opened(source: Source, *, at: int | None = None) -> Tape:
    """A tape of the source; `at` is the seq that is to be looked at first."""
    return Tape(source, await source.open(at=at))
