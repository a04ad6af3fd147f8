"""After all is healed, a new process can open every session, and goes on with it."""

import asyncio

from flightlog.errors import Fenced, FlightlogError, LogCorrupt, SessionEnded, Suspended
from flightlog.session import Session
from tests.sim.harness import Harness
from tests.sim.outsider import Importer
from tests.sim.world import World

_SECONDS = 120.0  # virtual, until a session that is not claimed counts as unclaimable
_TRIES = 20


class Claimer(Harness):
    """Opens the session by its key, appends, and looks for calls that nobody cares for."""

    async def live(self) -> None:
        async with self.open(reopen=True, key=self.key) as session:
            await self.work(session)

    async def work(self, s: Session) -> None:
        await self.note(s)
        orphans = [c.call_id for c in s.state.calls if c.phase in ("running", "ruled")]
        if orphans:
            self.world.violated(f"{self.key} is claimed, but {orphans} is in flight and nobody's")


async def claim_all(world: World) -> None:
    """Claim the session of every key; what others asked of it meanwhile is done first."""
    world.weather.stale = 0.0
    for key in world.imported:
        await _import(world, key)
    for key in (*world.keys, *world.imported):
        for _ in range(_TRIES):
            try:
                await _claim(world, key)
            except (Suspended, SessionEnded, Fenced):
                continue
            break
        else:
            world.violated(f"{key} cannot be claimed: it ends or is suspended every time")


async def _import(world: World, key: str) -> None:
    """Whatever dead importers left: two more runs give it up, and do it."""
    for _ in range(2):
        process = world.process("importer")
        await world.run(process, Importer(world, process, key).live())


async def _claim(world: World, key: str) -> None:
    process = world.process("claimer")
    claimer = Claimer(world, process, key)
    try:
        await asyncio.wait_for(world.run(process, claimer.live()), _SECONDS)
    except (Suspended, SessionEnded, Fenced):
        raise  # somebody had asked for that, or the last words of a dead process came late
    except LogCorrupt as exc:
        if world.weather.tamper not in ("rollback", "damage"):
            world.violated(f"{key} cannot be claimed: {exc}")
    except FlightlogError as exc:
        world.violated(f"{key} cannot be claimed: {type(exc).__name__}: {exc}")
    except TimeoutError:
        world.violated(f"{key} cannot be claimed: it takes for ever")
