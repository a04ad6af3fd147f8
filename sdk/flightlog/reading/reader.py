"""Reading a session to its end: passes until no doubt is left, a projection folded on top."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

from msgspec import Struct

from flightlog import clock, upcast
from flightlog import snapshot as snapshots
from flightlog.bus.protocol import Bus, Message
from flightlog.errors import BusUnavailable, InvalidEvent, LogCorrupt
from flightlog.event import WIRE_VERSION, Control, Event, decode, digest_of
from flightlog.reading.chain import Branch, Chain, Gap, Head, Part, Pin, Stray, Writers
from flightlog.reading.once import (
    LAG_DEADLINE,
    LAG_FIRST,
    LAG_MOST,
    Presence,
    Reading,
    Unexplained,
)
from flightlog.snapshot import Projection, Snapshot

S = TypeVar("S")

_START = Head()


class Folded(Struct, Generic[S], frozen=True):
    """A projection of a session, and where its log stood. `read_to` is the last message read."""

    state: S
    head: Head
    read_to: int
    strays: tuple[Stray, ...]
    presence: Presence
    tombstone: Control | None
    used: Snapshot | None
    tail: int
    last_live: int  # the last message on `live`, strays included: what an append must expect
    pins: tuple[Pin, ...] = ()  # branches that a later message won

    @property
    def seq(self) -> int:
        """The seq of the last event."""
        return self.head.seq

    @property
    def digest(self) -> str | None:
        """The digest of the last event."""
        return self.head.digest

    @property
    def sequence(self) -> int:
        """The stream sequence of the last event."""
        return self.head.sequence

    @property
    def part(self) -> Part:
        """The part that holds the last event."""
        return self.head.part

    @property
    def writers(self) -> Writers:
        """Every change of writer, as (seq, number)."""
        return self.head.writers


Passed = Callable[[Folded[S]], Awaitable[None]]


async def fold(
    bus: Bus,
    tenant: str,
    session: str,
    projection: Projection[S],
    *,
    snapshot: Snapshot | None = None,
    at_least: int = 0,
    until: int | None = None,
    passed: Passed[S] | None = None,
) -> Folded[S]:
    """Project a session from `snapshot` (or from nothing) to the end of its log, or to seq `until`.

    A snapshot on a losing chain, or a tail that does not follow from it, makes the fold start from
    zero. `passed` sees how far it is after each page: a seq that goes back tells of a new start.
    Raises `LogCorrupt` when the leader shows the damage too, `BusUnavailable` in time.
    """
    pins: tuple[Pin, ...] = ()
    patience = Patience()
    while True:
        reading = Reading(bus, tenant, session, head=head_of(snapshot), pins=pins)
        try:
            return await _pass(
                reading, projection, snapshot, at_least=at_least, until=until, passed=passed
            )
        except Undecodable:
            snapshot = None
        except Branch as branch:
            snapshot, pins = None, (*pins, branch.pin)
        except Unexplained as exc:
            if snapshot is None:
                await patience.doubt(bus, reading, exc.gap)
            elif exc.gap.expected == snapshot.digest:
                await _confirm_anchor(bus, reading, snapshot, exc.gap)
            snapshot = None


async def _pass(
    reading: Reading,
    projection: Projection[S],
    snapshot: Snapshot | None,
    *,
    at_least: int,
    until: int | None,
    passed: Passed[S] | None,
) -> Folded[S]:
    state = start(projection, snapshot)
    apply = projection.apply
    tail = 0
    try:
        async for batch in reading.batches(at_least=at_least):
            for event in batch:
                if until is not None and event.seq > until:
                    break
                state = apply(state, event if event.v == WIRE_VERSION else upcast.lift(event))
                tail += 1
            if passed is not None:
                await passed(_folded(reading, state, snapshot, tail))
    except Unexplained as exc:
        if until is None or exc.gap.seq < until:
            raise
    return _folded(reading, state, snapshot, tail)


def _folded(reading: Reading, state: S, snapshot: Snapshot | None, tail: int) -> Folded[S]:
    return Folded(
        state=state,
        head=reading.chain.head,
        read_to=reading.read_to,
        strays=tuple(reading.chain.strays),
        presence=reading.presence,
        tombstone=reading.tombstone,
        used=snapshot,
        tail=tail,
        last_live=reading.last_live,
        pins=reading.pins,
    )


class Undecodable(Exception):
    """A projection's own snapshot raises when it is read."""


def start(projection: Projection[S], snapshot: Snapshot | None) -> S:
    """The state that a snapshot holds, or that of an empty log. Raises `Undecodable`."""
    if snapshot is None:
        return projection.initial()
    try:
        return snapshots.join(projection, snapshot.cut)
    except Exception as exc:  # whatever a projection raises: its snapshot is a cache, not the log
        raise Undecodable from exc


def snapshot_of(projection: Projection[S], folded: Folded[S]) -> Snapshot:
    """The snapshot that a fold can go on from later."""
    return Snapshot(
        projection=projection.name,
        version=projection.version,
        schema=WIRE_VERSION,
        seq=folded.seq,
        sequence=folded.sequence,
        part=folded.part,
        read_to=folded.read_to,
        digest=folded.digest or "",
        writers=folded.writers,
        cut=snapshots.cut(projection, folded.state),
    )


def head_of(snapshot: Snapshot | None) -> Head:
    """Where a snapshot stands in its log."""
    if snapshot is None:
        return Head()
    return Head(
        seq=snapshot.seq,
        digest=snapshot.digest,
        sequence=snapshot.sequence,
        part="base" if snapshot.part == "base" else "live",
        writers=tuple((seq, number) for seq, number in snapshot.writers),
    )


class Patience:
    """Tells lag from damage: only what the leader shows too is damage; lag passes, or is told."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._pause = LAG_FIRST

    async def doubt(self, bus: Bus, reading: Reading, gap: Gap) -> None:
        """Return when it is time to read again; `LogCorrupt`, or `BusUnavailable` in the end."""
        if self._since is None:
            self._since = clock.elapsed()
        await confirm(bus, reading, gap)
        if clock.elapsed() - self._since > LAG_DEADLINE:
            why = f"its replica does not show what the leader has after seq {gap.seq}"
            raise BusUnavailable(reading.stream, why, session=reading.session)
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, LAG_MOST)


async def confirm(bus: Bus, reading: Reading, gap: Gap) -> None:
    """Raise `LogCorrupt` if the leader shows the gap too, and nothing that counts around it."""
    chain = Chain(reading.session, reading.chain.head, reading.pins)
    shown = False
    try:
        async for message, part in _from_leader(bus, reading, gap):
            if isinstance(chain.offer(message, part), Event):
                return
            shown = shown or message.sequence >= gap.sequence
    except Branch:
        return
    if shown:
        raise LogCorrupt(reading.session, gap.seq, expected=gap.expected, found=gap.found)


async def _from_leader(bus: Bus, reading: Reading, gap: Gap) -> AsyncIterator[tuple[Message, Part]]:
    """What the leader has from the last event that counts to the gap, and behind what was read."""
    head = reading.chain.head
    for part in _parts(reading, gap):
        sequence = head.sequence if part == head.part else 0
        subject = reading.subjects[part]
        while message := await bus.after(reading.stream, subject, sequence, leader=True):
            yield message, part
            passed = message.sequence >= gap.sequence
            sequence = max(message.sequence, reading.read_to if passed else 0)


def _parts(reading: Reading, gap: Gap) -> tuple[Part, ...]:
    if reading.seal is not None and gap.sequence == reading.seal.sequence:
        return ("base",)  # a seal that does not fit its base is not mended by what follows it
    head = reading.chain.head
    return ("live",) if head.seq and head.part == "live" else ("base", "live")


async def _confirm_anchor(bus: Bus, reading: Reading, snapshot: Snapshot, gap: Gap) -> None:
    subject = reading.subjects[head_of(snapshot).part]
    found = await bus.after(reading.stream, subject, snapshot.sequence - 1, leader=True)
    if found is not None and (digest_of(found.body) == snapshot.digest or _is_control(found)):
        return
    raise LogCorrupt(
        reading.session,
        snapshot.seq,
        expected=f"digest {gap.expected}",
        found=f"digest {digest_of(found.body)}" if found else "nothing",
    )


def _is_control(message: Message) -> bool:
    try:
        return isinstance(decode(message.body), Control)
    except InvalidEvent:
        return False


async def read(
    bus: Bus,
    tenant: str,
    session: str,
    *,
    after: int = 0,
    until: int | None = None,
    place: Head = _START,
    pins: tuple[Pin, ...] = (),
) -> AsyncIterator[Event]:
    """Yield a session's events in order. Memory is bounded by a page.

    What lies before `place`, which is not behind `after`, is read only if the log does not follow
    from there. Events before a damage are yielded, then `LogCorrupt` is raised. A branch that a
    later writer won is seen only behind it: a seq that goes back says that what came from there on
    is void. Those whose `pins` are known are followed at once.
    """
    last, patience = after, Patience()
    while True:
        reading = Reading(bus, tenant, session, head=place, pins=pins)
        try:
            async for batch in reading.batches():
                for event in batch:
                    if event.seq > last and (until is None or event.seq <= until):
                        yield event
                        last = event.seq
        except Branch as branch:
            pins = (*pins, branch.pin)
            last = max(after, min(last, branch.pin.seq - 1))
            place = place if place.seq < branch.pin.seq else _START
        except Unexplained as exc:
            if place.seq:
                place = _START
                continue
            if until is not None and exc.gap.seq >= until:
                return
            await patience.doubt(bus, reading, exc.gap)
        else:
            return
