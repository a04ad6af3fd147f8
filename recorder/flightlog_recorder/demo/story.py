"""The demo itself: three runs of one agent; two of them are killed in the middle of a turn."""

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex

from msgspec import Struct

import flightlog
from flightlog.cache.catalog import Row
from flightlog.event import Event
from flightlog.log import Log
from flightlog_recorder.demo import evidence
from flightlog_recorder.demo.cache import Cache, connected
from flightlog_recorder.demo.evidence import Evidence, Kill, Outcome
from flightlog_recorder.demo.faults import DemoFailed
from flightlog_recorder.demo.listener import PATIENCE, Listener
from flightlog_recorder.demo.model import AUDITS
from flightlog_recorder.demo.narrator import Narrator
from flightlog_recorder.demo.stage import PROJECTOR, Stage
from flightlog_recorder.demo.workspace import OUTBOX, Workspace
from flightlog_recorder.embedded import Servers
from flightlog_recorder.embedded.child import Child

KILL_TURN = len(AUDITS) + 1  # three tools at once, one of which waits for deliveries
RECORDED = 2  # of the three, when the harness is killed
_LOOK_AGAIN = 0.05  # seconds between looks at the catalog


class Told(Struct, frozen=True):
    """What the demo has shown; `seconds` from the first server on."""

    killed: Evidence
    redis_emptied: Evidence
    catalog_refilled: bool | None
    seconds: float

    @property
    def good(self) -> bool:
        """Whether everything was as promised."""
        kept = self.killed.good and self.redis_emptied.good
        return kept and self.catalog_refilled is not False


class Story:
    """Tells the demo on servers that run already."""

    def __init__(
        self, log: Log, stage: Stage, listener: Listener, cache: Cache, narrator: Narrator
    ) -> None:
        self._log, self._stage, self._listener = log, stage, listener
        self._cache, self._narrator = cache, narrator
        self._run = token_hex(4)
        self._sessions: list[str] = []

    async def tell(self) -> tuple[Evidence, Evidence, bool | None]:
        """All three runs, the uninterrupted one first."""
        expected = await self._uninterrupted()
        self._narrator.chapter("2  The same agent, killed with SIGKILL in the middle of a turn")
        self._listener.detailed = True
        killed = await self._killed(expected)
        self._narrator.chapter("3  Once more, and this time Redis is emptied as well")
        self._listener.detailed = False
        return killed, *await self._emptied(expected)

    async def _uninterrupted(self) -> Outcome:
        self._narrator.chapter("1  An agent works through the night, and nobody interrupts it")
        workspace = self._stage.workspace("uninterrupted")
        workspace.deliver()
        harness = self._start("uninterrupted", workspace)
        await self._stage.ended(harness, workspace)
        session = await self._session("uninterrupted")
        found = await evidence.outcome(self._log, session, workspace)
        if found.status != "completed":
            raise DemoFailed(self._stage.last_words("uninterrupted"))
        stored, runs = (await self._log.state(session)).seq, len(workspace.runs())
        self._narrator.line("completed", f"{stored} events stored, {runs} tool runs")
        return found

    def _start(self, name: str, workspace: Workspace) -> Child:
        harness = self._stage.harness(self._key(name), workspace)
        self._narrator.line("harness", f"process {harness.pid} starts")
        return harness

    def _key(self, name: str) -> str:
        return f"demo/{self._run}/{name}"

    async def _session(self, name: str) -> str:
        found = await self._log.look_up(self._key(name))
        if found is None:
            raise DemoFailed(f"no session was opened: {self._stage.last_words(name)}")
        self._sessions.append(found)
        return found

    async def _killed(self, expected: Outcome) -> Evidence:
        workspace = self._stage.workspace("killed")
        kill, session = await self._kill("killed", workspace)
        workspace.deliver()
        harness = self._start("killed", workspace)
        return await self._finished(harness, session, workspace, kill, expected)

    async def _emptied(self, expected: Outcome) -> tuple[Evidence, bool | None]:
        workspace = self._stage.workspace("emptied")
        kill, session = await self._kill("emptied", workspace)
        with self._stage.projector_held():  # it would refill Redis before anyone saw it empty
            dropped = await self._cache.empty(self._log.tenant, [session])
            self._narrator.line("emptied", f"Redis: {dropped} keys are gone")
            workspace.deliver()
            harness = self._start("emptied", workspace)
            heard = self._listener.sessions[session]
            await self._until(lambda: heard.writers == 2, harness, "emptied")
        refilled = await self._refilled()
        return await self._finished(harness, session, workspace, kill, expected), refilled

    async def _finished(
        self, harness: Child, session: str, workspace: Workspace, kill: Kill, expected: Outcome
    ) -> Evidence:
        await self._stage.ended(harness, workspace)
        self._narrator.progress("reading the log")
        found = await evidence.gather(self._log, session, workspace, kill, expected)
        self._report(found, workspace)
        return found

    async def _kill(self, name: str, workspace: Workspace) -> tuple[Kill, str]:
        """Run the harness until the log shows the moment, and kill it."""
        known = set(self._listener.sessions)
        harness = self._start(name, workspace)
        await self._until(lambda: self._is_time(known), harness, name)
        session = await self._session(name)
        await self._snapshot(session)
        harness.kill()
        kill = await self._look(session)
        self._narrator.line("killed", f"process {harness.pid} by SIGKILL, after event {kill.seq}")
        self._narrator.line("", f"{RECORDED} of 3 results are recorded, the third tool was running")
        return kill, session

    async def _until(self, condition: Callable[[], bool], harness: Child, name: str) -> None:
        if not await self._listener.until(condition, alive=lambda: harness.alive):
            raise DemoFailed(f"the harness did not come far enough: {self._stage.last_words(name)}")

    def _is_time(self, known: set[str]) -> bool:
        heard = self._listener.sessions
        new = [heard[session] for session in heard.keys() - known]
        return any(h.turn == KILL_TURN and h.counts["tool_result"] == RECORDED for h in new)

    async def _look(self, session: str) -> Kill:
        events = [event async for event in self._log.read(session)]
        started, done = _calls(events, "tool_call"), _calls(events, "tool_result")
        return Kill(seq=len(events), recorded=done, in_flight=started - done)

    async def _snapshot(self, session: str) -> None:
        """Wait until the projector has written a snapshot: it does from 100 events on, or 60 s."""
        self._narrator.progress("the third tool waits for a file")
        await self._catalog(
            lambda rows: session in rows and rows[session].snapshot_seq > 0,
            what="the snapshot",
        )

    async def _catalog(self, wanted: Callable[[dict[str, Row]], bool], *, what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while not wanted(await self._rows()):
                    self._stage.check_projector()
                    await asyncio.sleep(_LOOK_AGAIN)
        except TimeoutError:
            words = self._stage.last_words(PROJECTOR)
            raise DemoFailed(f"{what} took over {PATIENCE:.0f} s; projector: {words}") from None

    async def _rows(self) -> dict[str, Row]:
        return {row.session: row for row in (await self._log.sessions()).rows}

    async def _refilled(self) -> bool | None:
        if not self._cache.ours:
            self._narrator.line("catalog", "this Redis holds other data: not all was emptied")
            return None
        began = time.monotonic()
        await self._catalog(lambda rows: set(self._sessions) <= set(rows), what="the refill")
        took = f"{time.monotonic() - began:.1f} s"
        back = f"all {len(self._sessions)} sessions are listed again after {took}, by itself"
        self._narrator.verdict(True, "catalog", back)
        return True

    def _report(self, found: Evidence, workspace: Workspace) -> None:
        again = ", ".join(found.repeated) or "no recorded step ran again"
        mails = len((workspace.files / OUTBOX).read_text().splitlines())
        sent = "the mail was sent once" if mails == 1 else f"the mail was sent {mails} times"
        say = self._narrator.verdict
        say(not found.repeated and mails == 1, "once", f"{again}; {sent}")
        say(
            not found.lost,
            "durable",
            f"{found.acked} acked, {found.stored} stored, {found.lost} lost",
        )
        say(found.results_equal, "equal", "result and files are those of the uninterrupted run")
        fine = found.chain_ok and found.snapshot_equals_replay
        say(fine, "verified", f"{found.stored} events in one chain; snapshot + tail = full replay")


def _calls(events: list[Event], type: str) -> frozenset[str]:
    return frozenset(event.payload["call_id"] for event in events if event.type == type)


@asynccontextmanager
async def _scene(servers: Servers, tenant: str, narrator: Narrator) -> AsyncGenerator[Story]:
    environment = {**servers.environment(), "FLIGHTLOG_TENANT": tenant}
    with tempfile.TemporaryDirectory(prefix="flightlog-demo-") as root:
        stage = Stage(Path(root), environment)
        async with (
            flightlog.connect(nats=servers.nats_url, redis=servers.redis_url, tenant=tenant) as log,
            connected(servers.redis_url) as cache,
        ):
            narrator.line("servers", "NATS and Redis are up; acked means on disk")
            listener = Listener(log, narrator)
            await listener.start()
            try:
                narrator.line("projector", f"process {stage.projector()} folds the log into Redis")
                yield Story(log, stage, listener, cache, narrator)
            finally:
                stage.close()
                await listener.close()


async def tell(servers: Servers, narrator: Narrator, *, tenant: str) -> Told:
    """Tell the whole demo on these servers."""
    began = time.monotonic()
    async with _scene(servers, tenant, narrator) as story:
        killed, emptied, refilled = await story.tell()
    return Told(killed, emptied, refilled, round(time.monotonic() - began, 1))
