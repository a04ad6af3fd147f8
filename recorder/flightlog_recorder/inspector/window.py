"""Events by their seq, found by bisection: what lies before them is not read.

A window is read under the reader's rule from a message near its beginning. Where that message is no
event that counts, or the log does not follow from it, the log is read from its first event.
"""

from contextlib import aclosing

from msgspec import Struct

from flightlog import Log, LogCorrupt, NoSuchSession, SessionPurged
from flightlog import event as events
from flightlog.bus.protocol import Bus, Message
from flightlog.errors import InvalidEvent
from flightlog.event import Control, Event
from flightlog.reading.chain import Head, Part
from flightlog.wire import subject as names
from flightlog_recorder.inspector.marks import Mark, Marks
from flightlog_recorder.replay.source import START, Damage, LiveSource, Rewound

NEAR = 128  # events: reading so many costs less than another step of the bisection
BEHIND = 1 << 62  # the seq of what is no event: whatever is wanted lies before it


class Window(Struct, frozen=True):
    """Events in a row; `damage` says why there are no more of them."""

    events: list[Event]
    damage: str | None = None


async def window(log: Log, session: str, first: int, last: int) -> Window:
    """The events from `first` to `last`, as far as there are any.

    Raises `NoSuchSession` and `SessionPurged`.
    """
    await last_of(log.bus, log.tenant, session)
    for head in (await anchor(log.bus, log.tenant, session, before=first), START):
        try:
            return Window(await _between(log, session, head, first, last))
        except (Rewound, Damage):
            continue
    return await _as_far_as_it_goes(log, session, first, last)


async def tip(log: Log, session: str) -> Head:
    """Where the log ends. Raises `NoSuchSession` and `SessionPurged`."""
    guess = await last_of(log.bus, log.tenant, session)
    head = await anchor(log.bus, log.tenant, session, before=guess)
    try:
        return await behind(log, session, head)
    except (Rewound, Damage):
        return await _sure_tip(log, session)


async def behind(log: Log, session: str, head: Head) -> Head:
    """Where the log ends, from a place in it on. Raises `Rewound` and `Damage`."""
    async with aclosing(LiveSource(log, session).stretches(head)) as stretches:
        async for stretch in stretches:
            head = stretch.head
    return head


async def anchor(bus: Bus, tenant: str, session: str, *, before: int) -> Head:
    """The place of an event below seq `before`, near it; the start where there is none."""
    if before <= NEAR:
        return START
    for part in ("live", "base"):
        subject = names.log_subject(tenant, session, part, prefix=bus.layout.prefix)
        if found := await _bisected(bus, bus.layout.stream_of(session), subject, before):
            return Head(found.seq, found.digest, found.sequence, part)
    return START


async def _bisected(bus: Bus, stream: str, subject: str, before: int) -> Event | None:
    """The last event on the subject that is known to be below `before`."""
    low = await bus.after(stream, subject, 0)
    high = await bus.last(stream, subject)
    if low is None or high is None:
        return None
    found = _below(low, before)
    under, over = low.sequence, high.sequence
    while found is not None and before - found.seq > NEAR and over - under > 1:
        middle = (under + over) // 2
        message = await bus.after(stream, subject, middle)
        if message is not None and (better := _below(message, before)):
            found, under = better, max(middle, message.sequence)
        else:
            over = middle
    return found


def _below(message: Message, before: int) -> Event | None:
    try:
        found = events.decode(message.body, sequence=message.sequence)
    except InvalidEvent:
        return None
    return found if isinstance(found, Event) and found.seq < before else None


async def last_of(bus: Bus, tenant: str, session: str) -> int:
    """The seq that the last message claims; also tells whether this is a session at all."""
    parts: tuple[Part, Part] = ("live", "base")
    for part in parts:
        subject = names.log_subject(tenant, session, part, prefix=bus.layout.prefix)
        message = await bus.last(bus.layout.stream_of(session), subject)
        if message is not None:
            return _claimed(message, session, part)
    raise NoSuchSession(session)


def _claimed(message: Message, session: str, part: Part) -> int:
    try:
        found = events.decode(message.body, sequence=message.sequence)
    except InvalidEvent:
        return BEHIND
    match found:
        case Control(type="tombstone") if part == "live":
            raise SessionPurged(session)
        case Event(seq=seq) if part == "live":
            return seq
        case Event() | Control(type="tombstone"):
            raise NoSuchSession(session, "its base is not sealed: a fork or import is not done")
        case _:
            return BEHIND


async def _sure_tip(log: Log, session: str) -> Head:
    try:
        return (await log.fold(session)).head
    except LogCorrupt as exc:
        return Head(exc.seq)


async def _between(log: Log, session: str, head: Head, first: int, last: int) -> list[Event]:
    found: list[Event] = []
    async with aclosing(LiveSource(log, session).stretches(head)) as stretches:
        async for stretch in stretches:
            found += [event for event in stretch.events if first <= event.seq <= last]
            if stretch.head.seq >= last:
                break
    return found


async def marked(log: Log, session: str, last: int) -> list[tuple[int, Mark]]:
    """The marks of the whole session, up to its damage if there is one."""
    source, marks = LiveSource(log, session), Marks(last)
    while True:
        try:
            async with aclosing(source.stretches(START)) as stretches:
                async for stretch in stretches:
                    marks.take(stretch.events)
        except Rewound:
            marks = Marks(last)
        except Damage:
            return marks.found()
        else:
            return marks.found()


async def _as_far_as_it_goes(log: Log, session: str, first: int, last: int) -> Window:
    """Read from the beginning, with every turn the log takes."""
    source, found = LiveSource(log, session), list[Event]()
    while True:
        try:
            async for stretch in source.stretches(START):
                found += [event for event in stretch.events if first <= event.seq <= last]
        except Rewound:
            found = []
        except Damage as damage:
            return Window(found, str(damage))
        else:
            return Window(found)
