"""The door of a log: how a session is entered, owned, and left."""

import asyncio
import functools
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from signal import Signals
from typing import Literal

from msgspec.structs import replace

from flightlog import clock
from flightlog.blobs.blob import Blobs
from flightlog.blobs.spill import Limits
from flightlog.bus.patience import ANSWER_TIMEOUT
from flightlog.bus.protocol import Connection
from flightlog.cache.recall import Cache
from flightlog.errors import BusUnavailable, SessionLive
from flightlog.reading.reader import Folded, Passed
from flightlog.running import alive, opening
from flightlog.running.alive import Beats
from flightlog.running.journal import Journal, OnEvent
from flightlog.running.opening import Opened, Wanted
from flightlog.running.stopping import heeding
from flightlog.session import Session
from flightlog.state import SessionState
from flightlog.wire import subject as names
from flightlog.wire.carry import Redact
from flightlog.writing import keys
from flightlog.writing.holding import Holding
from flightlog.writing.keys import MadeBy

OnLive = Literal["takeover", "refuse"]

OPEN_DEADLINE = 30.0  # seconds for opening a session, listening and the log's pages apart


class Door:
    """Where the sessions of this process are entered: it beats for them and knows its own."""

    def __init__(
        self,
        bus: Connection,
        cache: Cache,
        tenant: str,
        redact: Redact | None,
        limits: Limits,
    ) -> None:
        self.bus, self.tenant = bus, tenant
        self._cache, self._redact, self._limits = cache, redact, limits
        self._beats = Beats(bus, tenant)
        self._open_here: dict[str, Session] = {}

    def inside(self, id: str) -> Session | None:
        """The session, if this process writes it."""
        return self._open_here.get(id)

    async def close(self) -> None:
        """Stop beating."""
        await self._beats.close()

    @asynccontextmanager
    async def enter(
        self,
        wanted: Wanted,
        on_event: OnEvent | None,
        *,
        id: str | None = None,
        on_live: OnLive = "takeover",
        gone: str | None = None,
        signals: frozenset[Signals],
        deadline: float = OPEN_DEADLINE,
    ) -> AsyncGenerator[Session]:
        """Own the wanted session until the block is left; without key and id, a new one."""
        opening.check(wanted.key, id, wanted.labels, wanted.harness_version)
        until = clock.elapsed() + deadline
        identify = functools.partial(self._identify, wanted.key, id)
        found, made_by = await opening.patiently(identify, until=until)
        wanted = replace(wanted, id=found, made_by=made_by)
        if on_live == "refuse":
            until, writer = await self._refuse_live(found, until, gone)
            wanted = replace(wanted, after_writer=writer)
        snapshot = await self._cache.snapshot(found)
        look = functools.partial(opening.look, self.bus, wanted, snapshot)
        folded, until = await opening.page_by_page(look, until=until)
        opened = await self._open(wanted, folded, on_event, until)
        opens = functools.partial(self.enter, signals=signals)
        session = Session(self.bus, self.tenant, *opened, opens)
        async with heeding(session, signals), session, self._writing(session):
            await self._start(session, until)
            yield session

    async def _start(self, session: Session, until: float) -> None:
        """Rule and take the inbox by the same deadline, or in one answer's time if that is near."""
        try:
            async with asyncio.timeout_at(max(until, clock.elapsed() + ANSWER_TIMEOUT)):
                await session.start()
        except TimeoutError:
            why = "it is ours, but what was in flight could not be ruled in time"
            stream = self.bus.layout.stream_of(session.id)
            raise BusUnavailable(stream, why, session=session.id) from None

    @asynccontextmanager
    async def _writing(self, session: Session) -> AsyncGenerator[None]:
        """This process beats for the session, and tells it what its own connection cannot hear."""
        if not session.writes:
            yield
            return
        if (older := self._open_here.get(session.id)) is not None:
            older.listener.check_takeover()
        self._open_here[session.id] = session
        self._beats.opened(session.id)
        try:
            yield
        finally:
            if self._open_here.get(session.id) is session:
                del self._open_here[session.id]
                self._beats.closed(session.id)

    async def _identify(self, key: str | None, id: str | None) -> tuple[str, MadeBy | None]:
        """The session's id, and what made its key; None for an id, which never creates."""
        if key is not None:
            entry = await keys.claim(self.bus, self.tenant, key)
            return entry.id, entry.made_by
        if id is not None:
            return names.token("session id", id), None
        return self.bus.layout.mint(), "session"

    async def _open(
        self,
        wanted: Wanted,
        folded: Folded[SessionState],
        on_event: OnEvent | None,
        until: float,
    ) -> tuple[Journal, Opened]:
        blobs = Blobs(self.bus, self.tenant, wanted.id, deadline=None)
        holding = Holding(blobs, self._limits)
        journal = Journal(
            wanted.id, folded.state, redact=self._redact, on_event=on_event, holding=holding
        )
        opened = await opening.own(self.bus, wanted, folded, journal, until=until)
        journal.appender = opened.appender
        try:
            fetch = functools.partial(holding.fetch, journal.state)
            journal.state = await opening.patiently(fetch, until=until)
        except BaseException:
            if opened.appender is not None:
                await opened.appender.close()
            raise
        return journal, opened

    async def _refuse_live(self, id: str, until: float, gone: str | None) -> tuple[float, int]:
        """Raise if somebody writes it; else the time until when to open it, listening apart.

        With the number of its last writer. The log alone knows that nobody does: the catalog lags.
        """
        snapshot = await self._cache.snapshot(id)

        def look(passed: Passed[SessionState]) -> Awaitable[Folded[SessionState]]:
            return opening.fold(self.bus, self.tenant, id, snapshot, passed=passed)

        folded, until = await opening.page_by_page(look, until=until)
        state, began = folded.state, clock.elapsed()
        if gone and state.writer_id and not state.writer_id.startswith(gone):
            raise SessionLive(id)
        is_left = gone is not None or state.status != "running"
        patience = alive.ASK_PATIENCE if is_left else alive.SILENCE
        listen = functools.partial(alive.is_live, self.bus, self.tenant, id, patience=patience)
        if id in self._open_here or await opening.patiently(listen, until=until + patience):
            raise SessionLive(id)
        return until + clock.elapsed() - began, state.writer
