"""Looks at one session's log: its overview, and what stands in the way of reading it all."""

from msgspec import Struct

from flightlog import SessionPurged
from flightlog.bus.protocol import Bus
from flightlog.errors import LogCorrupt, NoSuchSession
from flightlog.reading import reader
from flightlog.reading.chain import Stray
from flightlog_recorder.inspect import overview
from flightlog_recorder.inspect.overview import OVERVIEW, Overview


class Look(Struct, frozen=True):
    """What was seen; `damage` says why the log is readable only so far."""

    session: str
    overview: Overview
    strays: tuple[Stray, ...] = ()
    damage: str | None = None


async def look(bus: Bus, tenant: str, session: str) -> Look:
    """Read a session's whole log; a damaged one up to its last good event.

    Raises `NoSuchSession`, `SessionPurged`, `BusUnavailable`.
    """
    try:
        folded = await reader.fold(bus, tenant, session, OVERVIEW)
    except LogCorrupt as exc:
        good = await _up_to(bus, tenant, session, exc.seq)
        return Look(session, good, damage=str(exc))
    match folded.presence:
        case "present":
            return Look(session, folded.state, folded.strays)
        case "purged":
            raise SessionPurged(session)
        case "unsealed":
            raise NoSuchSession(session, "its base is not sealed: a fork or import is not done")
        case "absent":
            raise NoSuchSession(session)


async def _up_to(bus: Bus, tenant: str, session: str, seq: int) -> Overview:
    seen = Overview()
    async for event in reader.read(bus, tenant, session, until=seq):
        seen = overview.apply(seen, event)
        if event.seq == seq:
            break
    return seen
