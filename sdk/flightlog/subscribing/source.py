"""One consumer of a subscription: what it brings as events, and what of it is in hand here."""

import contextlib
from collections.abc import Sequence
from weakref import WeakSet

from msgspec import Struct
from msgspec.structs import replace

from flightlog import event as events
from flightlog.bus.nats_bus import NatsBus
from flightlog.bus.notices import ACK_WAIT, Notice, Notices, Start, Wish
from flightlog.errors import BusUnavailable
from flightlog.event import Event
from flightlog.subscribing import letter as dead
from flightlog.subscribing.letter import Letter
from flightlog.wire import subject as names
from flightlog.wire.layout import DEAD_STREAM, NOTICE_STREAM

KEEP_EVERY = ACK_WAIT / 3  # seconds between two words to the broker about what we still hold
MAX_ACK_PENDING = 1_000  # of a stream: deliveries that wait for an answer, or for their next try
_CONTROL = frozenset({"seal", "tombstone"})


class Whose(Struct, frozen=True):
    """The subscriber that a source is of, and the types it asked for; None for all."""

    tenant: str
    name: str
    types: frozenset[str] | None


class Source:
    """A consumer of live events or of notices, shared by all processes of a subscriber."""

    def __init__(self, bus: NatsBus, whose: Whose, stream: str, wish: Wish) -> None:
        self._bus, self._whose, self._batch = bus, whose, wish.batch
        self.notices = Notices(bus, stream, names.durable(whose.tenant, whose.name), wish)
        self._held: WeakSet[Notice] = WeakSet()

    async def take(self, patience: float) -> list[Notice]:
        """What comes within `patience` seconds; what nobody asked for is acknowledged unread."""
        found = await self.notices.fetch(self._batch, patience)
        await self.notices.ack([each for each in found if not self._wants(each.type)])
        wanted = [each for each in found if self._wants(each.type)]
        self._held.update(wanted)
        return wanted

    def _wants(self, type: str) -> bool:
        """What names no type must be read to know it."""
        types = self._whose.types
        return not type or (type not in _CONTROL and (types is None or type in types))

    async def event(self, notice: Notice) -> Event | None:
        """The event that was stored there, if it is one and asked for.

        Raises `InvalidEvent`, `BusUnavailable`.
        """
        body = notice.body
        if body is None:
            body = await self._body(self.notices.stream, notice.subject, notice.sequence)
        found = events.decode(body, sequence=notice.sequence) if body is not None else None
        return found if isinstance(found, Event) and self._wants(found.type) else None

    async def _body(self, stream: str, subject: str, sequence: int) -> bytes | None:
        """A message's body; a replica may lag, the leader alone knows that it was purged."""
        for leader in (False, True):
            found = await self._bus.after(stream, subject, sequence - 1, leader=leader)
            if found is not None and found.sequence == sequence:
                return found.body
        return None

    async def ack(self, notice: Notice) -> None:
        """It is done with. Raises `BusUnavailable`; it comes again then."""
        self._held.discard(notice)
        await self.notices.ack([notice])

    async def give_back(self, given: Sequence[Notice], delay: float = 0.0) -> None:
        """Have these delivered again, to anyone, in `delay` seconds. Raises `BusUnavailable`."""
        self._held.difference_update(given)
        await self.notices.give_back(given, delay)

    async def bury(self, notice: Notice, event: Event | None, reason: str) -> None:
        """Keep a dead letter in its place. Raises `LogFull`, `BusUnavailable`; it comes again."""
        await dead.bury(self._bus, self._whose.tenant, self._letter(notice, event, reason))
        await self.ack(notice)

    def _letter(self, notice: Notice, event: Event | None, reason: str) -> Letter:
        return Letter(
            name=self._whose.name,
            session_id=notice.subject.split(".")[-1 if self._tells else -2],
            seq=event.seq if event is not None else 0,
            type=event.type if event is not None else notice.type,
            stream=self.notices.stream,
            sequence=notice.sequence,
            attempts=notice.delivered,
            reason=reason,
            ts=events.now(),
        )

    @property
    def _tells(self) -> bool:
        """Whether it is about sessions, not of one: the subject ends with the session then."""
        return self.notices.stream == NOTICE_STREAM

    async def stop(self) -> None:
        """Take no more; what has come and was not taken goes to others at once."""
        with contextlib.suppress(BusUnavailable):  # it comes again by itself
            await self.notices.give_back(await self.notices.drain())

    async def keep(self) -> None:
        """Tell the broker what is still in hand here, and see where the consumer stands."""
        await self.notices.keep(list(self._held))
        await self.notices.info()


class Returned(Source):
    """The consumer of dead letters that are sent again: each stands for its event."""

    def _wants(self, type: str) -> bool:
        return type == dead.AGAIN

    async def event(self, notice: Notice) -> Event | None:
        """The event that the letter names."""
        letter = await self._read(notice)
        if letter is None:
            return None
        subject = self._subject(letter)
        body = await self._body(letter.stream, subject, letter.sequence)
        found = events.decode(body, sequence=letter.sequence) if body is not None else None
        return found if isinstance(found, Event) else None

    async def bury(self, notice: Notice, event: Event | None, reason: str) -> None:  # noqa: ARG002  the letter knows it
        """Keep the letter again, with what is the reason now."""
        if (letter := await self._read(notice)) is not None:
            tries = letter.attempts + notice.delivered
            again = replace(letter, attempts=tries, reason=reason, ts=events.now(), again=None)
            await dead.bury(self._bus, self._whose.tenant, again)
        await self.ack(notice)

    async def _read(self, notice: Notice) -> Letter | None:
        body = await self._body(DEAD_STREAM, notice.subject, notice.sequence)
        return dead.read(body) if body is not None else None

    def _subject(self, letter: Letter) -> str:
        tenant, session, prefix = self._whose.tenant, letter.session_id, self._bus.layout.prefix
        if letter.stream == NOTICE_STREAM:
            return names.notice_subject(tenant, session, prefix=prefix)
        return names.log_subject(tenant, session, "live", prefix=prefix)


def sources(bus: NatsBus, whose: Whose, *, start: Start, ahead: int) -> list[Source]:
    """All that a subscriber listens to: every log stream, notices, and what is sent again."""
    prefix = bus.layout.prefix
    where = Wish(
        filter=names.live_filter(whose.tenant, prefix=prefix),
        start=start,
        headers_only=whose.types is not None,
        max_ack_pending=MAX_ACK_PENDING,
        batch=ahead,
    )
    told = names.notice_subject(whose.tenant, "*", prefix=prefix)
    letters = names.dead_subject(whose.tenant, whose.name, "*", "*", prefix=prefix)
    return [
        *(Source(bus, whose, stream, where) for stream in bus.layout.streams),
        Source(bus, whose, NOTICE_STREAM, replace(where, filter=told)),
        Returned(bus, whose, DEAD_STREAM, replace(where, filter=letters, start="all")),
    ]
