"""A job: starts the program, waits for its end, and opens the session itself only after that."""

import asyncio
import contextlib
import functools
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from signal import Signals
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from flightlog import (
    BusUnavailable,
    Fenced,
    FlightlogError,
    Log,
    Session,
    SessionLive,
    SessionPurged,
    clock,
)
from flightlog.running import alive, opening
from flightlog.state import SessionState
from flightlog_recorder.run import verdict as verdicts
from flightlog_recorder.run.program import Program
from flightlog_recorder.run.stops import Stops
from flightlog_recorder.run.verdict import (
    FENCED,
    After,
    Before,
    Began,
    End,
    Finish,
    Leave,
    Retry,
    Rules,
    Start,
    Suspend,
)

LOOK_DEADLINE = 5.0  # seconds for the bus to answer before the program is started,
RECORD_DEADLINE = 60.0  # and after its end, when there is something to lose,
STOP_DEADLINE = 5.0  # unless the job is told to end: a pod's grace period is short
PAUSE_MOST = 60.0  # seconds between two attempts
_ELSEWHERE = "another process is writing the session; nothing is started or appended"

Connect = Callable[[], AbstractAsyncContextManager[Log]]
Tell = Callable[[str], None]


class Job(Struct, frozen=True, kw_only=True):
    """What is to be run. Durations are seconds.

    `grace` is how long the program has to end once it is told to; `backoff` the pause before the
    first restart, doubled each time; `lines` how many of its last lines on stderr are kept.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    key: str
    labels: dict[str, str]
    rules: Rules
    grace: float
    backoff: float
    lines: int


class Runner:
    """Runs one job to its end."""

    def __init__(self, job: Job, connect: Connect, tell: Tell) -> None:
        self._job, self._connect, self._tell = job, connect, tell
        self._stops = Stops()

    async def run(self) -> int:
        """Run the job; its exit code. Raises `BusUnavailable`, `SessionPurged`, `LogCorrupt`."""
        with self._stops.heeded():
            found = await self._work()
        self._tell(found.why)
        return found.code

    async def _work(self) -> Leave | Finish | Suspend:
        found, began = await self._begin()
        while isinstance(found, Start):
            if self._stops.told is not None:
                return self._stopped(self._stops.told)
            program = Program(self._job.command, self._job.environment, lines=self._job.lines)
            end = await self._supervise(program)
            judged = await self._close(end, program, began)
            if not isinstance(judged, Retry):
                return judged
            began = replace(began, attempts=judged.attempt)
            await self._pause(judged)
        return found

    async def _begin(self) -> tuple[Before, Began]:
        state = await opening.patiently(self._look, until=clock.elapsed() + LOOK_DEADLINE)
        found = verdicts.before(state, self._job.rules)
        if state is None or isinstance(found, Leave):
            return found, Began()
        async with self._connect() as log:
            live = await self._stops.unless_told(_is_live(log, state))
            if self._stops.told is not None:
                return self._stopped(self._stops.told), Began()
            if live:
                return Leave(FENCED, _ELSEWHERE), Began()
            if isinstance(found, Finish):
                await self._record(log, found, state, None)
        return found, Began(state.writer, verdicts.attempts(state))

    async def _look(self) -> SessionState | None:
        async with self._connect() as log:
            return await self._state(log)

    async def _supervise(self, program: Program) -> End:
        self._stops.program = program
        ended = asyncio.create_task(program.ended())
        asked = asyncio.create_task(self._stops.asked())
        try:
            await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done() and not (await asyncio.wait({ended}, timeout=self._job.grace))[0]:
                self._tell(f"the program did not end in {self._job.grace:g} s and is killed")
        finally:
            asked.cancel()
            program.kill()
        return End(await ended, self._stops.told)

    async def _close(self, end: End, program: Program, began: Began) -> After:
        """Judge how the program ended, and record it; soon, once the job is to end."""
        judge = functools.partial(self._judge, Closing(end, program, began))
        judging = opening.patiently(judge, until=clock.elapsed() + RECORD_DEADLINE)
        try:
            found = await self._stops.unless_told(judging, left=STOP_DEADLINE)
        except BusUnavailable:
            if self._stops.told is None:
                raise
            found = None
        return found or self._stopped(self._stops.told or Signals.SIGTERM)

    async def _judge(self, closing: "Closing") -> After:
        async with self._connect() as log:
            state = await self._state(log)
            found = verdicts.after(state, closing.end, self._job.rules, closing.began)
            if _is_recorded(found, state):
                return found
            return await self._record(log, found, state, closing)

    async def _record(
        self, log: Log, found: After, state: SessionState | None, closing: "Closing | None"
    ) -> After:
        """Append what was found, unless the session has ended or is another's meanwhile.

        Its last writer is gone: before the start nobody wrote it, and of our own only what the
        program left behind may be alive, which says so at once.
        """
        job = self._job
        entering = log.session(
            key=job.key,
            labels=job.labels,
            harness_version=(state.harness_version if state else None) or "",
            signals=(),
            on_live="refuse",
            gone=verdicts.gone(state, job.rules),
        )
        try:
            async with entering as session:
                if session.writes:
                    await _append(session, found, closing)
                elif closing is not None:
                    return verdicts.after(session.state, closing.end, job.rules, closing.began)
        except (Fenced, SessionLive):
            return Leave(FENCED, _ELSEWHERE)
        return found

    async def _state(self, log: Log) -> SessionState | None:
        session = await log.look_up(self._job.key)
        if session is None:
            return None
        folded = await log.past.latest(session)
        if folded.presence == "purged":
            raise SessionPurged(session)
        return folded.state if folded.presence == "present" else None

    async def _pause(self, found: Retry) -> None:
        pause = min(PAUSE_MOST, self._job.backoff * 2.0 ** min(found.attempt - 1, 30))
        pause *= 0.5 + clock.fraction() / 2
        self._tell(f"{found.why}; again in {pause:.1f} s")
        await self._stops.wait(pause)

    def _stopped(self, told: Signals) -> Leave:
        return Leave(128 + told, f"stopped by {told.name}; it can be resumed")


class Closing(Struct, frozen=True):
    """What a program that has ended leaves to be recorded."""

    end: End
    program: Program
    began: Began

    def told(self, attempts: int) -> dict[str, Any]:
        """How it ended and what it last said, as it goes into the log."""
        code = self.end.code
        return {
            "attempts": attempts,
            "exit_code": code if code >= 0 else None,
            "signal": None if code >= 0 else verdicts.described(code).removeprefix("signal "),
            "stderr": self.program.tail.lines(),
        }


def _is_recorded(found: After, state: SessionState | None) -> bool:
    match found:
        case Leave():
            return True
        case Suspend():
            return state is None or state.status != "running"
        case Retry(attempt=attempt):
            return state is not None and verdicts.attempts(state) >= attempt
        case Finish():
            return False


async def _append(session: Session, found: After, closing: Closing | None) -> None:
    match found:
        case Retry(attempt=attempt, why=why) if closing is not None:
            await session.append(verdicts.ATTEMPT_FAILED, closing.told(attempt))
            await session.suspend(why)
        case Suspend(reason=reason):
            await session.suspend(reason)
        case Finish(error=None):
            await session.end("completed")
        case Finish(error=error):
            told = closing.told(closing.began.attempts + 1) if closing is not None else None
            await session.end("failed", result=told, error=error)
        case _:
            pass


async def _is_live(log: Log, state: SessionState) -> bool:
    """Whether a process writes it: one that does says so at once, or is heard within its beats."""
    session = str(state.session_id)
    if await _is_stalled(log, session, state.seq):
        return False
    patience = alive.SILENCE if state.status == "running" else alive.ASK_PATIENCE
    return await alive.is_live(log.bus, log.tenant, session, patience=patience)


async def _is_stalled(log: Log, session: str, seq: int) -> bool:
    """Whether the recorder has listened for longer than we would."""
    if log.store is None:
        return False
    with contextlib.suppress(FlightlogError):  # without Redis we listen ourselves
        row = await log.store.row(log.tenant, session)
        return row is not None and row.stalled is not None and row.seq == seq
    return False
