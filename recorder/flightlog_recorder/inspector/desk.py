"""The sessions that are being looked at: a few open tapes, so that a step folds nothing anew."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import Struct

from flightlog import Log, NoSuchSession, SessionPurged
from flightlog.event import Event
from flightlog.state import SessionState
from flightlog_recorder.inspector import window as windows
from flightlog_recorder.inspector.marks import Mark
from flightlog_recorder.replay import tape as tapes
from flightlog_recorder.replay.source import LiveSource
from flightlog_recorder.replay.tape import NotThere, Tape

MARKED = 64  # sessions whose marks are kept
OPEN = 8  # tapes at a time; each holds some pages and a bounded number of states


class Marked(Struct, frozen=True):
    """The marks of a session that had `last` events."""

    marks: list[tuple[int, Mark]]
    last: int


class Desk:
    """Opens a session's tape when it is first asked about; one question at a time each."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._tapes: OrderedDict[str, _Held] = OrderedDict()
        self._marks: OrderedDict[str, Marked] = OrderedDict()
        self._marking = asyncio.Lock()  # reading a whole log once at a time is enough

    @asynccontextmanager
    async def tape(self, session: str, *, at: int | None = None) -> AsyncGenerator[Tape]:
        """The session's tape, up to event `at` at least. Raises `NotThere` if there is none.

        What was purged is forgotten here, too: then `SessionPurged` is raised.
        """
        await self._check_there(session)
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
        """An event; found by itself unless the tape has it at hand. Raises `NotThere`."""
        held = self._tapes.get(session)
        if held and held.tape and not held.lock.locked() and held.tape.is_at_hand(seq):
            await self._check_there(session)
            return await held.tape.event(seq)
        found = await windows.window(self.log, session, seq, seq)
        if not found.events:
            raise NotThere(session, seq, (await windows.tip(self.log, session)).seq)
        return found.events[0]

    async def _check_there(self, session: str) -> None:
        try:
            await windows.last_of(self.log.bus, self.log.tenant, session)
        except (SessionPurged, NoSuchSession):
            self._tapes.pop(session, None)
            self._marks.pop(session, None)
            raise

    async def marks(self, session: str, last: int) -> Marked:
        """Where to look; what was found is kept until the session is a tenth longer."""
        async with self._marking:
            known = self._marks.get(session)
            if known is None or not 0.9 * last <= known.last <= last:
                known = Marked(await windows.marked(self.log, session, last), last)
            self._marks[session] = known
            self._marks.move_to_end(session)
            while len(self._marks) > MARKED:
                self._marks.popitem(last=False)
            return known

    async def now(self, session: str) -> SessionState:
        """The session's state at the end of its log."""
        async with self.tape(session) as tape:
            await tape.grow()
            return (await tape.state(tape.last)).state


class _Held:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.tape: Tape | None = None
