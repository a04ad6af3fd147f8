"""A tenant's sessions as they were at any event: the nearest snapshot, and what follows on it."""

import asyncio
from collections.abc import AsyncIterator

from flightlog.bus.protocol import Bus
from flightlog.cache.recall import Cache
from flightlog.errors import LogCorrupt
from flightlog.event import Event
from flightlog.reading import passage, reader
from flightlog.reading.chain import Head, agree
from flightlog.reading.passage import Astray
from flightlog.reading.reader import Folded
from flightlog.running import opening
from flightlog.snapshot import SESSION, Snapshot
from flightlog.state import SessionState


class Past:
    """Reads what was, from as near as a snapshot leads; without one, from the first event."""

    def __init__(self, bus: Bus, cache: Cache, tenant: str) -> None:
        self._bus, self._cache, self._tenant = bus, cache, tenant

    async def fold(self, session: str, *, at: int | None = None) -> Folded[SessionState]:
        """The session's state now, or after event `at`; the rest tells where its log stands."""
        newest = None if at is None else await self._cache.head(session)
        if at is None or newest is None or newest.seq <= at:
            snapshot = await self._cache.snapshot(session)
            usable = snapshot if at is None or (snapshot and snapshot.seq <= at) else None
            return await opening.fold(self._bus, self._tenant, session, usable, until=at)
        end, near = await asyncio.gather(self._end(session, newest), self._cache.near(session, at))
        where = (self._bus, self._tenant, session)
        if end is not None and end.seq >= at:
            try:
                return await passage.fold(*where, SESSION, at, snapshot=near, end=end)
            except Astray:
                pass
        return await opening.fold(*where, None, until=at)

    async def latest(self, session: str) -> Folded[SessionState]:
        """The session's state now, with what other processes wrote a moment ago."""
        snapshot = await self._cache.snapshot(session)
        return await opening.to_the_end(self._bus, self._tenant, session, snapshot)

    async def read(
        self, session: str, *, after: int = 0, until: int | None = None
    ) -> AsyncIterator[Event]:
        """The events from `after` + 1 to `until`."""
        newest = await self._cache.head(session) if after or until is not None else None
        if newest is not None and until is not None and until <= newest.seq:
            try:
                async for event in self._passage(session, after, until, newest):
                    yield event
                    after = event.seq
            except Astray:
                pass
            else:
                return
        place = await self._place(session, after, newest) if newest else Head()
        where = (self._bus, self._tenant, session)
        async for event in reader.read(*where, after=after, until=until, place=place):
            yield event

    async def near(self, session: str, seq: int, *, end: Head) -> Snapshot | None:
        """The last snapshot at or before an event, if it lies on the chain that ends there."""
        found = await self._cache.near(session, seq)
        if found is None or not agree(found.writers, end.writers, upto=found.seq):
            return None
        return found

    async def end(self, session: str) -> Folded[None]:
        """Where the log stands now."""
        newest = await self._cache.head(session)
        return await passage.end(self._bus, self._tenant, session, newest)

    async def _end(self, session: str, newest: Snapshot) -> Folded[None] | None:
        """Where the log stands, unless it is damaged or no session's."""
        try:
            found = await passage.end(self._bus, self._tenant, session, newest)
        except LogCorrupt:
            return None
        return found if found.presence in ("present", "purged") else None

    async def _passage(
        self, session: str, after: int, until: int, newest: Snapshot
    ) -> AsyncIterator[Event]:
        end = await self._end(session, newest)
        if end is None or end.seq < until:
            raise Astray
        place = await self._place(session, after, newest)
        where = (self._bus, self._tenant, session)
        async for batch in passage.events(*where, place, until, end=end.head):
            for event in batch:
                if event.seq > after:
                    yield event

    async def _place(self, session: str, seq: int, newest: Snapshot) -> Head:
        """The nearest place at or before an event that reading can begin at."""
        if newest.seq <= seq:
            return reader.head_of(newest)
        near = await self._cache.head_near(session, seq) if seq else None
        if near is None or not agree(near.writers, newest.writers, upto=near.seq):
            return Head()
        return reader.head_of(near)
