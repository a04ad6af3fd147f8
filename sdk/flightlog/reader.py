"""Reading a session: its messages in pages, the reader's rule over them, a projection on top."""

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, Literal, TypeVar

from msgspec import Struct

from flightlog import clock
from flightlog import subject as names
from flightlog.bus import Bus, Message
from flightlog.chain import Branch, Chain, Gap, Head, Part, Pin, Stray, Writers
from flightlog.errors import BusUnavailable, InvalidEvent, LogCorrupt
from flightlog.event import Control, Event, decode, digest_of
from flightlog.snapshot import Projection, Snapshot

S = TypeVar("S")
Presence = Literal["absent", "unsealed", "present", "purged"]

_LAG_FIRST, _LAG_MOST = 0.002, 0.1  # seconds between looks at a replica that lags behind an ack
LAG_DEADLINE = 10.0  # seconds until a lagging replica is taken for an unavailable bus
_ANCHOR_DEADLINE = 1.0  # seconds until the leader is asked for a snapshot's unseen event
_NOTHING = Head()


class Unexplained(Exception):
    """The log does not follow from where this pass began; `confirm` asks the leader about it."""

    def __init__(self, gap: Gap) -> None:
        self.gap = gap
        super().__init__(gap.found)


class Reading:
    """One pass over a session's log; what it is and where it ends is known once it is through."""

    def __init__(
        self,
        bus: Bus,
        tenant: str,
        session: str,
        *,
        head: Head = _NOTHING,
        pins: tuple[Pin, ...] = (),
    ) -> None:
        self._bus = bus
        self.stream = bus.layout.stream_of(session)
        self.subjects = _subjects(bus, tenant, session)
        self._anchor = head
        self._next: dict[Part, int] = {"base": 0, "live": 0}
        self._next[head.part] = head.sequence
        self._past_base = head.seq > 0 and head.part == "live"
        self._base_seen = False
        self._anchored = head.seq == 0
        self.session = session
        self.chain = Chain(session, head, pins)
        self.read_to = 0
        self.last_live = 0
        self.seal: Control | None = None
        self.tombstone: Control | None = None

    @property
    def presence(self) -> Presence:
        """What the log is: absent, a base without its seal, present, or purged."""
        if self.tombstone is not None:
            return "purged"
        if self._base_open:
            return "unsealed"
        return "present" if self.chain.head.seq else "absent"

    @property
    def _base_open(self) -> bool:
        return self._base_seen and self.seal is None

    async def batches(self, *, at_least: int = 0) -> AsyncIterator[list[Event]]:
        """Events that count, page by page, base before live, to an end that covers `at_least`.

        Direct reads lag behind acks, so a short end is waited for, up to `LAG_DEADLINE`.
        """
        began = clock.elapsed()
        pause = _LAG_FIRST
        while True:
            async for batch in self._look():
                yield batch
            if self.read_to >= at_least and self._anchored:
                break
            self._check_patience(clock.elapsed() - began, at_least)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAG_MOST)
        if self.chain.gap is not None:
            raise Unexplained(self.chain.gap)

    def _check_patience(self, waited: float, at_least: int) -> None:
        if not self._anchored and waited > _ANCHOR_DEADLINE:
            raise Unexplained(self._astray("nothing"))
        if waited > LAG_DEADLINE:
            raise BusUnavailable(
                self.stream, f"its replica stays behind {at_least}", session=self.session
            )

    async def _look(self) -> AsyncIterator[list[Event]]:
        parts: list[Part] = ["live"] if self._past_base or self.seal else ["base", "live"]
        for part in parts:
            if part == "live" and self._base_open:
                return
            more = True
            while more:
                page = await self._bus.page(self.stream, self.subjects[part], self._next[part])
                more = page.more
                if events := self._take(page.messages, part):
                    yield events

    def _take(self, messages: list[Message], part: Part) -> list[Event]:
        events: list[Event] = []
        if messages and part == "base":
            self._base_seen = True
        for message in messages:
            self.read_to = max(self.read_to, message.sequence)
            if not self._anchored and part == self._anchor.part and self._is_anchor(message):
                continue
            found = self.chain.offer(message, part)
            if isinstance(found, Event):
                events.append(found)
            elif found is not None:
                self._control(found, part)
        if messages:
            self._next[part] = messages[-1].sequence + 1
            if part == "live":
                self.last_live = messages[-1].sequence
        return events

    def _is_anchor(self, message: Message) -> bool:
        """The tail begins at the snapshot's own event: that body must hash to its digest."""
        found = digest_of(message.body)
        self._anchored = True
        if message.sequence == self._anchor.sequence and found == self._anchor.digest:
            return True
        if isinstance(_decoded(message), Control):
            return False  # purged meanwhile: the tombstone is all there is
        raise Unexplained(self._astray(found))

    def _astray(self, found: str) -> Gap:
        anchor = self._anchor
        return Gap(anchor.seq, anchor.sequence, str(anchor.digest), found)

    def _control(self, control: Control, part: Part) -> None:
        head = self.chain.head
        if control.type == "tombstone":
            if part == "live":
                self.tombstone = control
        elif self.seal is None and part == "base":
            self.seal = control
            said = control.payload
            if (said.get("count"), said.get("digest")) != (head.seq, head.digest):
                self.chain.gap = Gap(head.seq, control.sequence, "the sealed events", "others")


def _decoded(message: Message) -> Event | Control | None:
    try:
        return decode(message.body)
    except InvalidEvent:
        return None


def _subjects(bus: Bus, tenant: str, session: str) -> dict[Part, str]:
    prefix = bus.layout.prefix
    parts: tuple[Part, Part] = ("base", "live")
    return {part: names.log_subject(tenant, session, part, prefix=prefix) for part in parts}


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


async def fold(
    bus: Bus,
    tenant: str,
    session: str,
    projection: Projection[S],
    *,
    snapshot: Snapshot | None = None,
    at_least: int = 0,
    until: int | None = None,
) -> Folded[S]:
    """Project a session from `snapshot` (or from nothing) to the end of its log, or to seq `until`.

    A snapshot on a losing chain, or a tail that does not follow from it, makes the fold start from
    zero. Raises `LogCorrupt` when the leader shows the damage too, `BusUnavailable` in time.
    """
    pins: tuple[Pin, ...] = ()
    doubts = 0
    while True:
        reading = Reading(bus, tenant, session, head=_head(snapshot), pins=pins)
        try:
            return await _pass(reading, projection, snapshot, at_least, until)
        except Branch as branch:
            snapshot, pins = None, (*pins, branch.pin)
        except Unexplained as exc:
            if snapshot is None or doubts:
                await confirm(bus, reading, exc.gap, final=doubts > 1)
            elif exc.gap.seq == snapshot.seq and exc.gap.expected == snapshot.digest:
                await _confirm_anchor(bus, reading, snapshot, exc.gap)
            snapshot, doubts = None, doubts + 1


async def _pass(
    reading: Reading,
    projection: Projection[S],
    snapshot: Snapshot | None,
    at_least: int,
    until: int | None,
) -> Folded[S]:
    state = projection.decode(snapshot.state) if snapshot else projection.initial()
    apply = projection.apply
    tail, head = 0, reading.chain.head
    async for batch in reading.batches(at_least=at_least):
        for event in batch:
            if until is not None and event.seq > until:
                break
            state = apply(state, event)
            tail += 1
    head = reading.chain.head
    return Folded(
        state=state,
        head=head,
        read_to=reading.read_to,
        strays=tuple(reading.chain.strays),
        presence=reading.presence,
        tombstone=reading.tombstone,
        used=snapshot,
        tail=tail,
        last_live=reading.last_live,
    )


def _head(snapshot: Snapshot | None) -> Head:
    if snapshot is None:
        return _NOTHING
    return Head(
        seq=snapshot.seq,
        digest=snapshot.digest,
        sequence=snapshot.sequence,
        part="base" if snapshot.part == "base" else "live",
        writers=tuple((seq, number) for seq, number in snapshot.writers),
    )


async def confirm(bus: Bus, reading: Reading, gap: Gap, *, final: bool = False) -> None:
    """Ask the leader whether what follows the last good event is really not there.

    Returns when the leader knows better than the replica that was read; raises `LogCorrupt` when
    it shows the same.
    """
    head = reading.chain.head
    chain = Chain(reading.session, head)
    stream, subject = reading.stream, reading.subjects[head.part]
    sequence = head.sequence
    while sequence < gap.sequence:
        message = await bus.after(stream, subject, sequence, leader=True)
        if not final and (message is None or chain.offer(message, head.part) is not None):
            return
        sequence = message.sequence if message else gap.sequence
    raise LogCorrupt(reading.session, gap.seq, expected=gap.expected, found=gap.found)


async def _confirm_anchor(bus: Bus, reading: Reading, snapshot: Snapshot, gap: Gap) -> None:
    subject = reading.subjects[_head(snapshot).part]
    found = await bus.after(reading.stream, subject, snapshot.sequence - 1, leader=True)
    if found is not None and digest_of(found.body) == snapshot.digest:
        return
    raise LogCorrupt(
        reading.session,
        snapshot.seq,
        expected=f"digest {gap.expected}",
        found=f"digest {gap.found}",
    )


async def read(
    bus: Bus, tenant: str, session: str, *, after: int = 0, until: int | None = None
) -> AsyncIterator[Event]:
    """Yield a session's events in order. Memory is bounded by a page.

    Events before a damage are yielded, then `LogCorrupt` is raised. A branch that a later writer
    won is seen only behind it; the events before it are not yielded again.
    """
    pins: tuple[Pin, ...] = ()
    last, doubts = after, 0
    while True:
        reading = Reading(bus, tenant, session, pins=pins)
        try:
            async for batch in reading.batches():
                for event in batch:
                    if event.seq > last and (until is None or event.seq <= until):
                        yield event
                        last = event.seq
        except Branch as branch:
            pins = (*pins, branch.pin)
        except Unexplained as exc:
            if doubts:
                await confirm(bus, reading, exc.gap, final=doubts > 1)
            doubts += 1
        else:
            return
