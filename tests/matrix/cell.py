"""One cell: a process that dies at an await point, those that finish its work, the judgement."""

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Literal

from msgspec import Struct

from flightlog import Decide, Event, Log, SessionPurged
from flightlog.bus.nats_bus import NatsBus
from flightlog.running import inbox
from flightlog.state import ENDED, SessionState
from flightlog_recorder.embedded import Servers
from flightlog_recorder.purge.purge import look
from tests.scripted import TENANT, chain_is_whole, stored

ROOT = Path(__file__).parents[2]
SECONDS = 60.0  # for one process; it takes about one
RUNS = 6  # to finish a session after the kill: each decision needs one more

Role = Literal["agent", "dying", "purge"]


class Row(Struct, frozen=True):
    """What is killed: a first run, a resume of one that died in its tools, or a purge."""

    name: Literal["run", "resume", "purge"]
    lost: int = 0  # every how many-th append loses its ack

    @property
    def role(self) -> Role:
        """What the process that is killed does."""
        return "purge" if self.name == "purge" else "agent"


ROWS = (Row("run"), Row("run", 3), Row("resume"), Row("resume", 3), Row("purge"), Row("purge", 2))


class Cell(Struct, frozen=True):
    """Where a process died, and what was found wrong afterwards (nothing, one hopes)."""

    row: Row
    last: int
    place: str
    wrong: list[str]


class Bench(Struct, frozen=True):
    """The servers that all cells share, and the folder that holds theirs."""

    servers: Servers
    log: Log
    root: Path

    async def run(self, role: Role, folder: Path, *, last: int = 0, lost: int = 0) -> int:
        """Run the victim once; its return code."""
        environment = os.environ | self.servers.environment()
        environment |= {"FLIGHTLOG_TENANT": TENANT, "PYTHONPATH": str(ROOT)}
        arguments = (role, folder.name, str(folder), str(last), str(lost))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.matrix.victim",
            *arguments,
            env=environment,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(SECONDS):
            _, said = await process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), said.decode()
        return process.returncode

    async def prepare(self, row: Row, name: str) -> Path:
        """A new folder, and what must have happened before the process that is killed."""
        folder = self.root / name
        folder.mkdir()
        if row.name == "resume":
            await self.run("dying", folder)
        if row.name == "purge":
            await self.run("agent", folder)
            session = await self.session(folder)
            (folder / "session").write_text(session)
            await self.log.say(session, "a message in the inbox")
        return folder

    async def awaits(self, row: Row) -> int:
        """How many await points the row's process has when nobody kills it."""
        folder = await self.prepare(row, f"whole-{row.name}-{row.lost}")
        await self.run(row.role, folder, lost=row.lost)
        return int((folder / "awaits").read_text())

    async def session(self, folder: Path) -> str:
        """The id of the folder's session."""
        found = await self.log.look_up(folder.name)
        assert found is not None, "no session under the key after a whole run"
        return found

    async def judge(self, row: Row, last: int) -> Cell | None:
        """Kill at await point `last`, finish the work, judge. None without such a point."""
        folder = await self.prepare(row, f"{row.name}-{row.lost}-{last}")
        if await self.run(row.role, folder, last=last, lost=row.lost) == 0:
            return None
        place = (folder / "place").read_text()
        wrong = await (self._purged(folder) if row.name == "purge" else self._finished(folder))
        return Cell(row, last, place, wrong)

    async def _finished(self, folder: Path) -> list[str]:
        """Run it again until it has ended; a person answers what the policies do not."""
        state: SessionState | None = None
        for _ in range(RUNS):
            await self.run("agent", folder)
            session = await self.session(folder)
            state = await self.log.state(session)
            if state.status in ENDED:
                break
            if isinstance(step := state.next, Decide):
                for call in step.calls:
                    by = {"announced_by": call.announced_by, "by": "a tester"}
                    ruling = inbox.decision(call.call_id, ruling="fail", **by)  # type: ignore[arg-type]
                    await self.log.send(session, ruling)
        assert state is not None
        return wrong(folder, state, await stored(self.log, await self.session(folder)))

    async def _purged(self, folder: Path) -> list[str]:
        """Purge again, whole; only the tombstone may be left."""
        await self.run("purge", folder)
        session, bus = (folder / "session").read_text(), self.log.bus
        assert isinstance(bus, NatsBus)
        seen = await look(self.log, bus, session)
        found = [] if seen.is_buried and seen.live_count == 1 else ["events are left"]
        found += ["inbox items are left"] if seen.inbox else []
        found += ["the key still names it"] if await self.log.look_up(folder.name) else []
        try:
            await self.log.state(session)
        except SessionPurged:
            return found
        return [*found, "it can still be read"]


def wrong(folder: Path, state: SessionState, events: list[Event]) -> list[str]:
    """What must not be, whatever died where."""
    found: list[str] = []
    if not chain_is_whole(events):
        found.append("the chain is broken")
    if state.status != "completed":
        found.append(f"the session is {state.status}")
    if lost := _acked(folder) - {f"{event.seq} {event.digest}" for event in events}:
        found.append(f"{len(lost)} acked events are not in the log")
    return found + _miscounted(folder, events) + _unsaid(events)


def _acked(folder: Path) -> set[str]:
    return set((folder / "acked").read_text().split("\n")) - {""}


def _miscounted(folder: Path, events: list[Event]) -> list[str]:
    """A side effect happens at most once per recorded start, and only reruns start again."""
    effects = Counter((folder / "effects").read_text().split())
    starts = Counter(e.payload["name"] for e in events if e.type == "tool_call")
    found = [
        f"{name}: {effects[name]} effects of {starts[name]} starts"
        for name in starts
        if effects[name] > starts[name]
    ]
    calls = Counter(e.payload["call_id"] for e in events if e.type == "tool_call")
    results = Counter(e.payload["call_id"] for e in events if e.type == "tool_result")
    found += [f"{call} started {n} times" for call, n in calls.items() if n > _may(call)]
    return found + [f"{call}: {results[call]} results" for call in calls if results[call] != 1]


def _may(call_id: str) -> int:
    """How often a call may be started: those of rerun tools once more after each of two kills."""
    return 3 if call_id.startswith(("look", "effect:mail")) else 1


def _unsaid(events: list[Event]) -> list[str]:
    said = Counter(e.payload.get("once") for e in events if e.type == "user_message")
    wanted = Counter(["task", *(f"n{n}" for n in range(10))])
    return [] if said == wanted else ["a message with once= is missing, or doubled"]
