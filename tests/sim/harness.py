"""A process that opens a session and works in it, and what it remembers of that for the checker."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

from flightlog.door import OnLive
from flightlog.errors import (
    CallRefused,
    Fenced,
    FlightlogError,
    InvalidValue,
    LogCorrupt,
    LogFull,
    NeedsDecision,
    SessionEnded,
    SessionPurged,
    Suspended,
    TooLarge,
)
from flightlog.event import Event
from flightlog.running import alive
from flightlog.session import EffectFailed, Session
from flightlog.state import encode
from flightlog.tool import tool
from tests.sim.process import Process
from tests.sim.records import Ack, Fold, Loss, Note, NoteFate, Opening, Run
from tests.sim.world import World

BENIGN = (CallRefused, NeedsDecision, EffectFailed, TimeoutError)  # a harness goes on after these
_ON_LIVE: tuple[OnLive, ...] = ("takeover",) * 9 + ("refuse",)
# Seconds over the deadline: an answer and a read that are being waited for, and one more answer for
# each of two readings whose page came just in time.
_OPENING_SLACK = 11.0


@tool(on_resume="rerun", effect="read")
def read() -> None:
    """Idempotent."""


@tool(on_resume="fail")
def post() -> None:
    """Its effect may be there or not."""


@tool(on_resume="ask")
def pay() -> None:
    """A person must say what became of it."""


class Harness:
    """One process' life with one session; `work` is what it does there."""

    def __init__(self, world: World, process: Process, key: str) -> None:
        self.world, self.process, self.key = world, process, key
        self.rng, self.loop, self.records = world.rng, world.loop, world.records
        self._notes = 0
        self._session = ""
        self.left_behind: list[asyncio.Task[None]] = []

    async def live(self) -> None:
        """From the first line of the program to the last."""
        try:
            async with self.open(reopen=self.rng.random() < 0.3) as session:
                await self.work(session)
        except FlightlogError as exc:
            self.world.trace(f"{self.process.name} ends: {type(exc).__name__} {exc}")
        await asyncio.gather(*self.left_behind, return_exceptions=True)

    async def work(self, s: Session) -> None:
        """What this kind of harness does."""
        raise NotImplementedError

    @asynccontextmanager
    async def open(self, *, reopen: bool, **target: str) -> AsyncGenerator[Session]:
        """The session, with everything written down that the process is told."""
        log = self.world.connect(self.process)
        target = target or self.world.target(self.key)
        began, deadline = self.loop.time(), self.rng.choice((5.0, 30.0))
        on_live = self.rng.choice(_ON_LIVE)
        try:
            async with log.session(
                key=target.get("key"),
                id=target.get("id"),
                harness_version="1",
                tools=[read, post, pay],
                reopen=reopen,
                on_live=on_live,
                on_event=self._on_event,
                signals=(),
                deadline=deadline,
            ) as session:
                self._opened(session, began)
                try:
                    yield session
                finally:
                    self._keep_state(session)
        except FlightlogError as exc:
            self.lost(exc, since=0.0 if self._session else began)
            if not self._session:
                listening = alive.SILENCE if on_live == "refuse" else 0.0
                limit = deadline + listening + _OPENING_SLACK
                self.world.check_deadline(self.process, "opening", began, limit)
            raise
        finally:
            await log.close()

    def _opened(self, session: Session, began: float) -> None:
        self._session = session.id
        opening = Opening(self.process.name, self.key, session.id, began)
        self.records.openings.append(opening)
        self.world.ids[self.key] = session.id

    def _on_event(self, event: Event) -> None:
        self.records.acks.append(
            Ack(
                process=self.process.name,
                session=event.session_id,
                seq=event.seq,
                digest=event.digest,
                sequence=event.sequence,
                type=event.type,
            )
        )

    def _keep_state(self, session: Session) -> None:
        state = session.state
        held = Fold(
            who=self.process.name,
            session=session.id,
            seq=state.seq,
            digest=state.digest,
            state=encode(state),
            at=0.0,  # what it holds may be older than now
        )
        self.records.folds.append(held)

    def lost(self, exc: FlightlogError, *, since: float = 0.0) -> None:
        """Remember being told that the session is another's, gone or damaged.

        Who opens a session is fenced by those alone who took over `since` then.
        """
        if isinstance(exc, Fenced | SessionPurged | LogCorrupt):
            session, name = getattr(exc, "session", ""), type(exc).__name__
            last = self.world.net.broker.log.last
            self.records.losses.append(Loss(self.process.name, session, name, last, since))

    def ran(self, session: str, announced_by: int | None, call_id: str) -> None:
        """Remember a side effect."""
        self.records.runs.append(Run(self.process.name, session, announced_by, call_id))

    def a_while(self) -> float:
        """Seconds that something takes."""
        return self.rng.choice((0.0, 0.01, 1.0)) * self.rng.random()

    async def all(self, work: Iterable[Coroutine[Any, Any, Any]]) -> None:
        """Do it all at once; what a harness can live with is forgiven."""
        ended = await asyncio.gather(*work, return_exceptions=True)
        for each in ended:
            if isinstance(each, BaseException) and not isinstance(each, BENIGN):
                raise each

    async def note(self, s: Session, deadline: float | None = None) -> None:
        """One append, and what its caller knows of it afterwards."""
        note = Note(self.process.name, s.id, self._notes)
        self._notes += 1
        self.records.notes.append(note)
        began = self.loop.time()
        try:
            event = await s.append("note", {"by": note.process, "n": note.n}, deadline=deadline)
            note.fate, note.digest = "acked", event.digest
        except asyncio.CancelledError:
            note.fate = "unknown"
            raise
        except FlightlogError as exc:
            note.fate, note.why = _fate(exc), type(exc).__name__
            self.lost(exc)
            if deadline is not None:
                self.world.check_deadline(self.process, "append", began, deadline + 0.001)
            if note.fate != "unknown" and not isinstance(exc, LogFull):
                raise


def _fate(exc: FlightlogError) -> NoteFate:
    match exc:
        case LogFull() | TooLarge() | InvalidValue() | SessionEnded() | Suspended():
            return "refused"
        case Fenced() | SessionPurged():
            return "fenced"
        case _:
            return "unknown"
