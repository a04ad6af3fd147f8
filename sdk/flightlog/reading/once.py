"""One pass over a session's messages, in pages: base, seal, live, under the reader's rule."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Literal

from flightlog import clock
from flightlog.bus.protocol import Bus, Message, Page
from flightlog.errors import BusUnavailable
from flightlog.event import Control, Event, digest_of
from flightlog.reading.chain import Chain, Gap, Head, Part, Pin
from flightlog.wire import subject as names

Presence = Literal["absent", "unsealed", "present", "purged"]

LAG_FIRST, LAG_MOST = 0.002, 0.1  # seconds between looks at a replica that lags behind an ack
LAG_DEADLINE = 10.0  # seconds until a lagging replica is taken for an unavailable bus
SLICE = 64  # messages worked on at a time: as many as arrive with one read of the socket
_ANCHOR_DEADLINE = 1.0  # seconds until the leader is asked for a snapshot's unseen event
_NOTHING = Head()


class Unexplained(Exception):
    """The log does not follow from where this pass began; the leader is to be asked about it."""

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
        upto: int | None = None,
    ) -> None:
        """`upto` is the seq behind which nothing is read, not even where the log ends."""
        self._bus = bus
        self.stream = bus.layout.stream_of(session)
        self.subjects = _subjects(bus, tenant, session)
        self._anchor = head
        self._next: dict[Part, int] = {"base": 0, "live": 0}
        self._next[head.part] = head.sequence
        self._past_base = head.seq > 0 and head.part == "live"
        self._base_seen = False
        self._anchored = head.seq == 0
        self._upto = upto
        self.session = session
        self.pins = pins
        self.chain = Chain(session, head, pins)
        self.read_to = 0
        self.last_live = 0
        self.seal: Control | None = None
        self.tombstone: Control | None = None
        self._misfit: Gap | None = None

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

    async def batches(self, *, at_least: int = 0) -> AsyncGenerator[list[Event]]:
        """Events that count, page by page, base before live, to an end that covers `at_least`.

        Direct reads lag behind acks, so a short end is waited for, up to `LAG_DEADLINE`.
        """
        began = clock.elapsed()
        pause = LAG_FIRST
        while not self._reached:
            async for batch in self._look():
                yield batch
            if self.read_to >= at_least and self._anchored:
                break
            self._check_patience(clock.elapsed() - began, at_least)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAG_MOST)
        if not self._reached and (gap := self._misfit or self.chain.gap):
            raise Unexplained(gap)

    @property
    def _reached(self) -> bool:
        return self._upto is not None and self._anchored and self.chain.head.seq >= self._upto

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
            ahead: asyncio.Task[Page] | None = self._ask(
                part, self._next[part], self.chain.head.seq
            )
            try:
                while ahead is not None:
                    page = await ahead
                    ahead = self._ask_ahead(page, part)
                    if events := await self._taken(page, part):
                        yield events
                    if self._reached:
                        return
                    if ahead is None and page.more:
                        ahead = self._ask(part, self._next[part], self.chain.head.seq)
            finally:
                if ahead is not None:
                    ahead.cancel()

    def _ask(self, part: Part, start: int, seq: int) -> asyncio.Task[Page]:
        """The page from a stream sequence on, where event `seq` was passed."""
        most = None if self._upto is None else max(1, self._upto - seq + 1)
        subject = self.subjects[part]
        return asyncio.ensure_future(self._bus.page(self.stream, subject, start, most=most))

    def _ask_ahead(self, page: Page, part: Part) -> asyncio.Task[Page] | None:
        """The next page, unless this one may be the last that is wanted."""
        passed = self.chain.head.seq + len(page.messages)
        if not page.more or (self._upto is not None and passed >= self._upto):
            return None
        start = page.messages[-1].sequence + 1 if page.messages else self._next[part]
        return self._ask(part, start, passed)

    async def _taken(self, page: Page, part: Part) -> list[Event]:
        """The page's events that count; the next page comes in while it is worked on."""
        events: list[Event] = []
        for at in range(0, len(page.messages) or 1, SLICE):
            await asyncio.sleep(0)
            events += self._take(page.messages[at : at + SLICE], part)
        return events

    def _take(self, messages: list[Message], part: Part) -> list[Event]:
        events: list[Event] = []
        if not messages:
            return events
        last = messages[-1].sequence
        self.read_to = max(self.read_to, last)
        if part == "base":
            self._base_seen = True
        if not self._anchored and part == self._anchor.part and self._is_anchor(messages[0]):
            messages = messages[1:]
        for message in messages:
            found = self.chain.offer(message, part)
            if isinstance(found, Event):
                events.append(found)
            elif found is not None:
                self._control(found, part)
        self._next[part] = last + 1
        if part == "live":
            self.last_live = last
        return events

    def _is_anchor(self, message: Message) -> bool:
        """The tail begins at the snapshot's own event: that body must hash to its digest."""
        found = digest_of(message.body)
        self._anchored = True
        if message.sequence == self._anchor.sequence and found == self._anchor.digest:
            return True
        raise Unexplained(self._astray(found))

    def _astray(self, found: str) -> Gap:
        anchor = self._anchor
        return Gap(anchor.seq, anchor.sequence, str(anchor.digest), found)

    def _control(self, control: Control, part: Part) -> None:
        if control.type == "tombstone":
            if part == "live":
                self.tombstone = control
                self._anchored = True  # a purge explains why a snapshot's event is gone
        elif self.seal is None and part == "base":
            self.seal = control
            self._misfit = _misfit(control, self.chain.head)


def _misfit(seal: Control, head: Head) -> Gap | None:
    said = seal.payload
    count, digest = (said.get("count"), said.get("digest")) if isinstance(said, dict) else (0, "?")
    if (count, digest) == (head.seq, head.digest):
        return None
    expected, found = f"{count} events up to {digest}", f"{head.seq} up to {head.digest}"
    return Gap(head.seq, seal.sequence, expected, found)


def _subjects(bus: Bus, tenant: str, session: str) -> dict[Part, str]:
    prefix = bus.layout.prefix
    parts: tuple[Part, Part] = ("base", "live")
    return {part: names.log_subject(tenant, session, part, prefix=prefix) for part in parts}
