"""A session's `base`: what did not happen now, written before its first live event and sealed.

Forks, imports and thawed archives are made this way (DESIGN section 3, "Seal"). A base without its
seal is no session. One whose author is gone is abandoned: the tombstone comes first, as it alone
stops an author who thaws; then the key is free, and the events go.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from flightlog import clock
from flightlog import event as events
from flightlog.blobs.blob import Blobs
from flightlog.bus.protocol import Bus, Message
from flightlog.errors import (
    Fenced,
    InvalidEvent,
    SessionPurged,
)
from flightlog.event import Control, Event
from flightlog.reading.chain import Head
from flightlog.wire import subject as names
from flightlog.wire.layout import BLOB_STREAM
from flightlog.writing import control, keys
from flightlog.writing.appender import Appender
from flightlog.writing.draft import Draft, Offered
from flightlog.writing.holding import stow
from flightlog.writing.keys import Entry
from flightlog.writing.writer import BATCH_BYTES, BATCH_EVENTS, Writer

STILL = 5.0  # seconds without a new message after which the author of a base is taken for dead
DEADLINE = 30.0  # seconds for one batch, or for the seal, to be acknowledged
_LOOK_AGAIN = 0.2

Standing = Literal["absent", "open", "sealed", "abandoned"]


class Base(Struct, frozen=True):
    """What a session's base is now; `sequence` is the stream sequence of its last message."""

    standing: Standing
    sequence: int
    digest: str | None = None


async def look(bus: Bus, tenant: str, session: str) -> Base:
    """What the base is, as its stream's leader sees it."""
    stream, subject = _place(bus, tenant, session)
    return _base(await bus.last(stream, subject))


async def settled(bus: Bus, tenant: str, session: str) -> Base:
    """What the base is once it is not growing any more: an author who is slow is waited for."""
    base = await look(bus, tenant, session)
    since = clock.elapsed()
    while base.standing == "open" and clock.elapsed() - since < STILL:
        await asyncio.sleep(_LOOK_AGAIN)
        now = await look(bus, tenant, session)
        if now.sequence != base.sequence:
            base, since = now, clock.elapsed()
    return base


def _base(last: Message | None) -> Base:
    if last is None:
        return Base("absent", 0)
    match _control(last):
        case Control(type="seal"):
            return Base("sealed", last.sequence)
        case Control(type="tombstone"):
            return Base("abandoned", last.sequence)
        case _:
            return Base("open", last.sequence, events.digest_of(last.body))


async def write_base(
    bus: Bus,
    tenant: str,
    session: str,
    drafts: Iterable[Offered] | AsyncIterable[Offered],
    *,
    number: int = 1,
    harness_version: str = "",
    deadline: float = DEADLINE,
) -> Head:
    """Write a new session's base and seal it; only from the seal's ack on is there a session.

    Groups of up to 256 events or 512 KiB are stored all or none, under expectation, so whoever else
    writes this base raises `Fenced` here. `number` is the writer's. `deadline` in seconds is that
    of one group: after `BusUnavailable` the base stays open, to be abandoned. Also raises
    `SessionPurged` (abandoned by another), `TooLarge` and `LogFull`.
    """
    stream, subject = _place(bus, tenant, session)
    writer = Writer(
        session,
        Head(),
        expected=0,
        harness_version=harness_version,
        number=number,
        replicas=bus.layout.replicas,
    )
    appender = Appender(bus, subject, stream, writer, _nobody_listens)
    try:
        async for group in _groups(_stowed(Blobs(bus, tenant, session), drafts)):
            await asyncio.gather(*(appender.append(each, deadline=deadline) for each in group))
    finally:
        await appender.close()
    await _seal(bus, subject, writer, deadline)
    return replace(writer.head, part="base")


def _nobody_listens(_: Event) -> None:
    """A base has no live event: nobody is told of it."""


async def _groups(drafts: AsyncIterable[Offered]) -> AsyncIterator[list[Offered]]:
    group: list[Offered] = []
    size = 0
    async for draft in drafts:
        if group and (len(group) == BATCH_EVENTS or size + draft.size > BATCH_BYTES):
            yield group
            group, size = [], 0
        group.append(draft)
        size += draft.size
    if group:
        yield group


async def _stowed(
    blobs: Blobs, drafts: Iterable[Offered] | AsyncIterable[Offered]
) -> AsyncIterator[Offered]:
    """The drafts, blobs of their own being stored; a copy refers to what its author copied."""
    async for draft in _each(drafts):
        yield (await stow(blobs, draft))[0] if isinstance(draft, Draft) else draft


async def _each(drafts: Iterable[Offered] | AsyncIterable[Offered]) -> AsyncIterator[Offered]:
    if isinstance(drafts, AsyncIterable):
        async for draft in drafts:
            yield draft
    else:
        for draft in drafts:
            yield draft


async def _seal(bus: Bus, subject: str, writer: Writer, deadline: float) -> None:
    head, session = writer.head, writer.session
    message = control.seal(session, count=head.seq, digest=head.digest, writer=writer.number)
    found = await control.store(bus, subject, message, session, writer.expected, deadline=deadline)
    if isinstance(found, Message):
        stopped = _base(found).standing == "abandoned"
        raise SessionPurged(session) if stopped else Fenced(session, head.seq)


async def abandon(
    bus: Bus,
    tenant: str,
    session: str,
    *,
    entries: Sequence[Entry],
    by: str,
    why: str,
    deadline: float = DEADLINE,
) -> bool:
    """Give up a base that was not sealed, and free its keys; False if it is sealed after all.

    Idempotent: a crash in the middle is finished by the next call. Its author, if he still runs,
    raises `SessionPurged`.
    """
    stream, subject = _place(bus, tenant, session)
    until = clock.elapsed() + deadline
    base = await look(bus, tenant, session)
    while base.standing in ("absent", "open"):
        message = control.tombstone(session, digest=base.digest, by=by, why=why)
        left = until - clock.elapsed()
        found = await control.store(bus, subject, message, session, base.sequence, deadline=left)
        base = Base("abandoned", found) if isinstance(found, int) else _base(found)
        if base.standing != "abandoned":  # the author wrote on: what matters is where he is now
            base = await look(bus, tenant, session)
    if base.standing == "sealed":
        return False
    for entry in entries:
        await keys.release(bus, entry)
    await bus.purge(stream, subject, below=base.sequence)
    await _drop_blobs(bus, tenant, session)
    return True


async def _drop_blobs(bus: Bus, tenant: str, session: str) -> None:
    blobs = names.blob_subject(tenant, session, "*", prefix=bus.layout.prefix)
    if (last := await bus.last(BLOB_STREAM, blobs)) is not None:
        await bus.purge(BLOB_STREAM, blobs, below=last.sequence + 1)


def _place(bus: Bus, tenant: str, session: str) -> tuple[str, str]:
    subject = names.log_subject(tenant, session, "base", prefix=bus.layout.prefix)
    return bus.layout.stream_of(session), subject


def _control(message: Message) -> Control | None:
    try:
        found = events.decode(message.body)
    except InvalidEvent:
        return None
    return found if isinstance(found, Control) else None
