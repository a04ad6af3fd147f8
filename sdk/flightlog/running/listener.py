"""What a writer hears of others: items in its inbox, and takeovers of its session."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from flightlog import clock
from flightlog.bus.protocol import Bus, Listening, Message
from flightlog.errors import BlobCorrupt, BlobMissing, BusUnavailable, FlightlogError
from flightlog.running import inbox
from flightlog.running.inbox import Received
from flightlog.running.journal import UNRECORDABLE, Journal
from flightlog.running.ruling import Owed
from flightlog.state import ENDED
from flightlog.wire import payload as payloads
from flightlog.wire import subject as names
from flightlog.wire.layout import INBOX_STREAM

LOOK_SECONDS = 5.0  # how long a hint is followed: it comes before its message can be read
POLL_FIRST = 10.0  # seconds to a look without a hint, as hints get lost; doubled each time
POLL_MOST = 120.0  # seconds: 10,000 idle sessions then ask 170 times a second, not 2,000
_PAUSE_FIRST, _PAUSE_MOST = 0.005, 0.5  # seconds between looks, doubled each time


class Listener:
    """Follows the hints for one session, for as long as this process writes it."""

    def __init__(self, bus: Bus, tenant: str, journal: Journal) -> None:
        self._bus, self._tenant, self._journal = bus, tenant, journal
        self._listening: list[Listening] = []
        self._taking = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._doubt = asyncio.Event()

    async def start(self) -> None:
        """Listen; nothing is taken yet."""
        session, prefix = self._journal.session, self._bus.layout.prefix
        items = names.inbox_subject(self._tenant, session, "*", prefix=prefix)
        live = names.live_filter(self._tenant, session, prefix=prefix)
        missed = self._doubt.set
        self._listening.append(await self._bus.listen(items, self._heard_item, missed=missed))
        self._listening.append(await self._bus.listen(live, self._heard_append, missed=missed))
        self._go(self._poll())

    async def close(self) -> None:
        """Stop listening; what was taken but not recorded is taken by the next writer."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for listening in self._listening:
            await listening.close()

    async def take(self) -> None:
        """Record what is new in the inbox. A caller that is cancelled leaves that going on."""
        await asyncio.shield(self._go(self._take()))

    def expect_item(self, sequence: int) -> None:
        """Take the inbox soon: an item with this stream sequence is in it."""
        self._go(_quietly(self._follow_item(sequence)))

    def check_takeover(self) -> None:
        """Look soon whether another writer owns the session, and stop the work if so."""
        self._go(_quietly(self._follow_takeover()))

    async def _heard_item(self, message: Message) -> None:
        self._go(_quietly(self._find_item(message.subject)))

    async def _heard_append(self, message: Message) -> None:
        """Foreign messages on our subject are hints to look, as refused appends pass there too."""
        appender = self._journal.appender
        if appender is not None and appender.writer.overtaken_by(message) is not None:
            self.check_takeover()

    async def _poll(self) -> None:
        """Look at once when the connection is back, then ever less often."""
        pause = POLL_FIRST
        while self._journal.stopped is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._doubt.wait()
            pause = pause_after(pause, missed=self._doubt.is_set())
            self._doubt.clear()
            await _quietly(self._take())
            await _quietly(self._overtaken())

    async def _find_item(self, subject: str) -> None:
        async for _ in _looks():
            with contextlib.suppress(BusUnavailable):
                if (found := await self._bus.after(INBOX_STREAM, subject, 0)) is not None:
                    await self._follow_item(found.sequence)
                    return

    async def _follow_item(self, sequence: int) -> None:
        async for _ in _looks():
            await self._take()
            if self._journal.state.inbox >= sequence or self._journal.stopped is not None:
                return

    async def _follow_takeover(self) -> None:
        async for _ in _looks():
            if await self._overtaken():
                return

    async def _overtaken(self) -> bool:
        appender = self._journal.appender
        if appender is None:
            return False
        with contextlib.suppress(BusUnavailable):
            if (error := await appender.overtaken()) is not None:
                self._journal.stop(error)
                return True
        return False

    async def _take(self) -> None:
        async with self._taking:
            after = self._journal.state.inbox
            session = self._journal.session
            async for received in inbox.received(self._bus, self._tenant, session, after=after):
                if self._journal.stopped is not None or self._journal.state.status in ENDED:
                    return
                await self._record_all(received)

    async def _record_all(self, received: Received) -> None:
        journal, at = self._journal, received.sequence
        try:
            owed = inbox.events_for(journal.state, received, redact=journal.redact)
            await self._record(owed)
        except UNRECORDABLE as exc:
            await journal.record(payloads.InboxRefused(inbox=at, why=_why(exc)))

    async def _record(self, owed: list[Owed]) -> None:
        match [each.payload for each in owed]:
            case [payloads.SessionSuspended() as last]:
                await self._journal.suspend(last)
            case [payloads.SessionEnded() as last]:
                await self._journal.end(last)
            case _:
                await self._journal.record_owed(owed)

    def _go(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it; a hint's trouble is met again by an append


def pause_after(pause: float, *, missed: bool) -> float:
    """Seconds to the next look without a hint; short again where hints may have been missed."""
    return POLL_FIRST if missed else min(2 * pause, POLL_MOST)


def _why(exc: FlightlogError) -> str:
    match exc:
        case BlobMissing() | BlobCorrupt():
            why = "it refers to a blob that this session does not hold, or not whole"
        case _:
            why = "too large, or not in the wire's form"
    return f"it cannot be recorded: {why}"


async def _quietly(work: Coroutine[Any, Any, object]) -> None:
    """Follow a hint; if that fails, the next append or look meets the same trouble and says."""
    with contextlib.suppress(FlightlogError):
        await work


async def _looks() -> AsyncIterator[None]:
    until, pause = clock.elapsed() + LOOK_SECONDS, _PAUSE_FIRST
    while clock.elapsed() < until:
        yield
        await asyncio.sleep(pause)
        pause = min(2 * pause, _PAUSE_MOST)
