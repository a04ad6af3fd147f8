"""Forking: a new session that starts as a copy of another one's first events.

The copies go to the new session's `base`, each re-chained under its id, `session_forked` behind
them; only the seal makes it a session (DESIGN section 3), so a crash leaves nothing to be seen.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from flightlog.blobs import held
from flightlog.blobs.blob import Blobs
from flightlog.bus.protocol import Bus
from flightlog.errors import (
    BusUnavailable,
    Fenced,
    FlightlogError,
    InvalidValue,
    KeyTaken,
    LogCorrupt,
    NoSuchSession,
    NotPermitted,
    SessionPurged,
)
from flightlog.event import Event
from flightlog.reading import passage, reader
from flightlog.reading.chain import Head
from flightlog.reading.passage import Astray
from flightlog.reading.reader import Folded
from flightlog.snapshot import SESSION, Snapshot
from flightlog.wire import payload as payloads
from flightlog.wire.payload import SessionForked
from flightlog.writing import keys, seal
from flightlog.writing.draft import Copy, Draft, Offered
from flightlog.writing.keys import Entry

_TRIES = 3
_BY, _GONE = "fork", "its author is gone"


class Point(Struct, frozen=True):
    """Where a fork leaves its source: behind event `at`, or behind the last one."""

    session: str
    at: int | None = None


async def fork(
    bus: Bus,
    tenant: str,
    point: Point,
    *,
    newest: Snapshot | None = None,
    key: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> str:
    """Make the fork and return its id; see `flightlog.Log.fork`.

    `newest` is the source's last snapshot: from there on is read where its log ends. Without one it
    is read twice, first to its end: whether an event counts is known only there (a later writer may
    have won), what was copied cannot be taken back, and it need not fit into memory.
    """
    at, end = await _reached(bus, tenant, point, newest)
    said = SessionForked(session=point.session, seq=at, key=key, labels=dict(labels or {}))
    for _ in range(_TRIES):
        entry = Entry(bus.layout.mint()) if key is None else await _claimed(bus, tenant, key)
        match (await seal.settled(bus, tenant, entry.id)).standing:
            case "sealed":
                await _check_same(bus, tenant, entry, point)
                return entry.id
            case "absent":
                with contextlib.suppress(Fenced, SessionPurged):  # another run has the same key
                    await _write(bus, tenant, entry, said, end)
                    return entry.id
            case _:
                await _give_up(bus, tenant, entry)
    raise BusUnavailable(bus.layout.stream_of(point.session), "others keep taking the fork's key")


async def _reached(
    bus: Bus, tenant: str, point: Point, newest: Snapshot | None
) -> tuple[int, Head]:
    """The event to fork at, and where the source stands; raises when it has none of that seq."""
    if point.at is not None and type(point.at) is not int:  # True is none either
        raise InvalidValue("at", "it is the seq of an event, a whole number")
    found = await _end(bus, tenant, point, newest)
    if found.presence == "purged":
        raise SessionPurged(point.session)
    if found.presence != "present":
        raise NoSuchSession(point.session)
    if point.at is not None and not 0 <= point.at <= found.seq:
        why = f"session {point.session} has {found.seq} events, there is no event {point.at}"
        raise InvalidValue("at", why)
    return found.seq if point.at is None else point.at, found.head


async def _end(bus: Bus, tenant: str, point: Point, newest: Snapshot | None) -> Folded[None]:
    """Where the source stands; a damage behind the point is none of the fork's."""
    try:
        return await passage.end(bus, tenant, point.session, newest)
    except LogCorrupt:
        if point.at is None:
            raise
        return await reader.fold(bus, tenant, point.session, passage.NOTHING, until=point.at)


async def _claimed(bus: Bus, tenant: str, key: str) -> Entry:
    entry = await keys.claim(bus, tenant, key, made_by="fork")
    if entry.made_by != "fork":
        raise KeyTaken(entry.id)
    return entry


async def _check_same(bus: Bus, tenant: str, entry: Entry, point: Point) -> None:
    """Whether what the key stands for is this very fork: made before, by a run like this one."""
    made = await reader.fold(bus, tenant, entry.id, SESSION)
    branch = made.state.lineage.forked_from
    if branch is None or branch.session != point.session or point.at not in (None, branch.seq):
        raise KeyTaken(entry.id)


async def _write(bus: Bus, tenant: str, entry: Entry, said: SessionForked, end: Head) -> None:
    try:
        await seal.write_base(bus, tenant, entry.id, _drafts(bus, tenant, entry.id, said, end))
    except (Fenced, SessionPurged, BusUnavailable):
        raise  # it is another's, or what was sent may be stored: whoever comes next gives it up
    except FlightlogError:
        await _give_up(bus, tenant, entry)
        raise


async def _give_up(bus: Bus, tenant: str, entry: Entry) -> None:
    entries = [entry] if entry.subject else []
    with contextlib.suppress(NotPermitted):  # the purge, which comes last, is the recorder's then
        await seal.abandon(bus, tenant, entry.id, entries=entries, by=_BY, why=_GONE)


async def _drafts(
    bus: Bus, tenant: str, session: str, said: SessionForked, end: Head
) -> AsyncIterator[Offered]:
    """What the fork begins with; the blobs of each event are stored before it is offered."""
    seq, digest = 0, None
    source, target = Blobs(bus, tenant, said.session), Blobs(bus, tenant, session)
    async for event in _copied(bus, tenant, said, end):
        if event.seq != seq + 1:
            raise _changed(bus, said)
        seq, digest = event.seq, event.digest
        for blob in held.references(event.raw):
            await target.take(blob, source)
        yield Copy(event)
    if seq != said.seq:
        raise _changed(bus, said)
    yield Draft("session_forked", payloads.encode(replace(said, digest=digest)))


def _changed(bus: Bus, said: SessionForked) -> BusUnavailable:
    why = "its history changed while it was copied; fork it again"
    return BusUnavailable(bus.layout.stream_of(said.session), why, session=said.session)


async def _copied(bus: Bus, tenant: str, said: SessionForked, end: Head) -> AsyncIterator[Event]:
    """The source's events up to the point, and none that a later writer took back."""
    where, last = (bus, tenant, said.session), 0
    try:
        async for batch in passage.events(*where, Head(), said.seq, end=end):
            for event in batch:
                yield event
                last = event.seq
    except Astray:
        pins = (await reader.fold(*where, passage.NOTHING, until=said.seq)).pins
        async for event in reader.read(*where, after=last, until=said.seq, pins=pins):
            yield event
