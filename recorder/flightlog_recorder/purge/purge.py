"""Purging a session step by step, and finishing what a crash left."""

import asyncio
from collections.abc import AsyncIterator

from msgspec import Struct
from msgspec.structs import replace

from flightlog import clock
from flightlog import event as events
from flightlog.bus.nats_bus import NatsBus
from flightlog.bus.protocol import Message
from flightlog.errors import (
    BusUnavailable,
    FlightlogError,
    InvalidEvent,
    LogCorrupt,
    NoSuchSession,
)
from flightlog.event import Control, Event
from flightlog.log import Log
from flightlog.wire import subject as names
from flightlog.wire.layout import BLOB_STREAM, DEAD_STREAM, INBOX_STREAM, NOTICE_STREAM
from flightlog.writing import control, keys
from flightlog_recorder.purge.consumers import behind
from flightlog_recorder.purge.steps import Bury, Clear, Done, ReleaseKey, Seen, next_step

PATIENCE = 30.0  # seconds for consumers to see the last event before it goes
_LOOK_AGAIN = 0.2


class ConsumersBehind(FlightlogError):
    """Durable consumers have not seen the session's last event; nothing was changed."""

    def __init__(self, session: str, consumers: list[str]) -> None:
        self.session, self.consumers = session, consumers
        super().__init__(
            f"session {session} has events that {', '.join(consumers)} did not acknowledge: "
            "wait, or purge with --force, which robs them"
        )


class Purged(Struct, frozen=True):
    """What a purge did: how many messages are gone, and whom it robbed of some."""

    session: str
    messages: int
    robbed: list[str]


class Reason(Struct, frozen=True):
    """What the tombstone will say: who wanted it, why, and how long (s) it meets late comers."""

    by: str
    why: str
    life: int = control.TOMBSTONE_LIFE


async def purge(
    log: Log,
    bus: NatsBus,
    session: str,
    *,
    reason: Reason,
    force: bool = False,
    patience: float = PATIENCE,
) -> Purged:
    """Delete a session for good; only a tombstone stays, for late writers to meet.

    Waits until every durable consumer has seen its last event; after `patience` seconds raises
    `ConsumersBehind`, or with `force` goes on and names them. Idempotent: a crash anywhere is
    finished by the next call, or by `finish`. Raises `NoSuchSession`.
    """
    seen = await look(log, bus, session)
    if not (seen.live or seen.base):
        raise NoSuchSession(session)
    robbed = await _await_consumers(bus, session, seen, force=force, patience=patience)
    key = await _key(log, session)
    return Purged(session, await _go_on(log, bus, session, key, reason), robbed)


async def finish(log: Log, bus: NatsBus, session: str) -> int:
    """Take the steps that a crashed purge left; returns how many messages went. Idempotent."""
    return await _go_on(log, bus, session, None, None)


async def unfinished(log: Log, bus: NatsBus) -> AsyncIterator[str]:
    """The tenant's sessions that have a tombstone and still something beside it."""
    wanted = f"{bus.layout.prefix}.*.{log.tenant}.*.*"
    for stream in bus.layout.streams:
        async for page in bus.subjects(stream, filter=wanted):
            found = [names.parse_log_subject(each, prefix=bus.layout.prefix) for each in page]
            for session in {each[1] for each in found if each is not None}:
                seen = await look(log, bus, session)
                if seen.is_buried and not isinstance(next_step(seen), Done):
                    yield session


async def _go_on(
    log: Log, bus: NatsBus, session: str, key: str | None, reason: Reason | None
) -> int:
    gone = 0
    while True:
        seen = await look(log, bus, session)
        entry = await keys.held(bus, log.tenant, key) if key is not None else None
        held = entry is not None and entry.id == session
        match next_step(replace(seen, is_held=held)):
            case ReleaseKey() if entry is not None:
                await keys.release(bus, entry)
            case Bury() as step if reason is not None:
                await _bury(log, bus, session, step, reason)
            case Clear(place, below):
                gone += await _clear(log, bus, session, place, below)
            case _:
                return gone


async def _bury(log: Log, bus: NatsBus, session: str, step: Bury, reason: Reason) -> None:
    """Append the tombstone; whoever appended meanwhile is seen by the next look."""
    stone = control.tombstone(
        session, digest=step.digest, by=reason.by, why=reason.why, life=reason.life
    )
    subject = names.log_subject(log.tenant, session, "live", prefix=bus.layout.prefix)
    await control.store(bus, subject, stone, session, step.expected)


async def _clear(log: Log, bus: NatsBus, session: str, place: str, below: int) -> int:
    prefix, tenant, stream = bus.layout.prefix, log.tenant, bus.layout.stream_of(session)
    match place:
        case "blob":
            stream, subject = BLOB_STREAM, names.blob_subject(tenant, session, "*", prefix=prefix)
        case "inbox":
            stream, subject = INBOX_STREAM, names.inbox_subject(tenant, session, "*", prefix=prefix)
        case "notice":
            stream, subject = NOTICE_STREAM, names.notice_subject(tenant, session, prefix=prefix)
        case "dead":
            stream = DEAD_STREAM
            subject = names.dead_subject(tenant, "*", session, "*", prefix=prefix)
        case _:
            subject = names.log_subject(tenant, session, place, prefix=prefix)
    return await bus.purge(stream, subject, below=below)


async def look(log: Log, bus: NatsBus, session: str) -> Seen:
    """The session as the leaders of its streams show it."""
    prefix, stream = bus.layout.prefix, bus.layout.stream_of(session)
    live = names.log_subject(log.tenant, session, "live", prefix=prefix)
    base = names.log_subject(log.tenant, session, "base", prefix=prefix)
    inbox = names.inbox_subject(log.tenant, session, "*", prefix=prefix)
    notice = names.notice_subject(log.tenant, session, prefix=prefix)
    blob = names.blob_subject(log.tenant, session, "*", prefix=prefix)
    letter = names.dead_subject(log.tenant, "*", session, "*", prefix=prefix)
    last, below, asked, told, kept, given_up = await asyncio.gather(
        bus.last(stream, live),
        bus.last(stream, base),
        bus.last(INBOX_STREAM, inbox),
        bus.last(NOTICE_STREAM, notice),
        bus.last(BLOB_STREAM, blob),
        bus.last(DEAD_STREAM, letter),
    )
    found = _decoded(last or below)
    return Seen(
        live=last.sequence if last else 0,
        live_count=await _count(bus, stream, live) if last else 0,
        base=below.sequence if below else 0,
        inbox=asked.sequence if asked else 0,
        notices=told.sequence if told else 0,
        blobs=kept.sequence if kept else 0,
        letters=given_up.sequence if given_up else 0,
        is_buried=last is not None and isinstance(found, Control) and found.type == "tombstone",
        digest=found.digest if isinstance(found, Event) else None,
    )


async def _count(bus: NatsBus, stream: str, subject: str) -> int:
    async for page in bus.subjects(stream, filter=subject):
        return page.get(subject, 0)
    return 0


def _decoded(message: Message | None) -> Event | Control | None:
    try:
        return events.decode(message.body) if message is not None else None
    except InvalidEvent:
        return None


async def _await_consumers(
    bus: NatsBus, session: str, seen: Seen, *, force: bool, patience: float
) -> list[str]:
    stream, last = bus.layout.stream_of(session), max(seen.live, seen.base)
    until = clock.elapsed() + patience
    while late := await behind(bus, stream, last):
        if force:
            return late
        if clock.elapsed() >= until:
            raise ConsumersBehind(session, late)
        await asyncio.sleep(_LOOK_AGAIN)
    return []


async def _key(log: Log, session: str) -> str | None:
    """The key under which the session was made; a damaged log shows it in its first events too."""
    try:
        return (await log.state(session)).key
    except BusUnavailable:
        raise  # a key that is not found is not released, and would stand for a grave
    except FlightlogError:
        pass
    try:
        async for event in log.read(session):
            found = event.payload
            if isinstance(found, dict) and isinstance(found.get("key"), str):
                return str(found["key"])
    except LogCorrupt:
        pass
    return None
