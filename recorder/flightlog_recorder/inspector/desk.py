"""The sessions that are being looked at: a few open tapes, so that a step folds nothing anew."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from flightlog import Log
from flightlog.event import Event
from flightlog.state import SessionState
from flightlog_recorder.inspector import window as windows
from flightlog_recorder.replay import tape as tapes
from flightlog_recorder.replay.source import LiveSource
from flightlog_recorder.replay.tape import Looked, NotThere, Tape

OPEN = 8  # tapes at a time; each holds some pages and a bounded number of states


class Desk:
    """Opens a session's tape when it is first asked about; one question at a time each."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._tapes: OrderedDict[str, _Held] = OrderedDict()

    @asynccontextmanager
    async def tape(self, session: str, *, at: int | None = None) -> AsyncGenerator[Tape]:
        """The session's tape, up to event `at` at least. Raises `NotThere` if there is none."""
        held = self._tapes.setdefault(session, _Held())
        self._tapes.move_to_end(session)
        while len(self._tapes) > OPEN:
            self._tapes.popitem(last=False)
        async with held.lock:
            if held.tape is None:
                held.tape = await tapes.opened(LiveSource(self.log, session), at=at)
            if at is not None and at > held.tape.last:
                await held.tape.grow()
                if at > held.tape.last:
                    raise NotThere(session, at, held.tape.last)
            yield held.tape

    async def event(self, session: str, seq: int) -> Event:
        """An event; found by itself while the tape is not open, or busy. Raises `NotThere`."""
        held = self._tapes.get(session)
        if held and held.tape and not held.lock.locked():
            async with self.tape(session, at=seq) as tape:
                return await tape.event(seq)
        found = await windows.window(self.log, session, seq, seq)
        if not found.events:
            raise NotThere(session, seq, (await windows.tip(self.log, session)).seq)
        return found.events[0]

    async def now(self, session: str) -> SessionState:
        """The session's state at the end of its log."""
        async with self.tape(session) as tape:
            await tape.grow()
            return (await tape.state(tape.last)).state

    async def around(self, session: str, seq: int) -> tuple[Looked, Looked]:
        """The states before and after an event."""
        async with self.tape(session, at=seq) as tape:
            before = await tape.state(max(0, seq - 1))
            return before, await tape.state(seq)


class _Held:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.tape: Tape | None = None
