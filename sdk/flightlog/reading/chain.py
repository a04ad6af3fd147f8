"""The reader's rule: which messages of a subject are the session's events, and which are strays.

Pure, and the real fence: the broker's check is the fast path (DESIGN section 4). An event counts if
its seq is the next one and its `prev` fits. Where two chains leave one event, the one whose first
event carries the higher writer number counts, else the earlier in the stream.
"""

from bisect import bisect_right
from typing import Literal

from msgspec import Struct

from flightlog import event as events
from flightlog.bus.protocol import Message
from flightlog.errors import InvalidEvent
from flightlog.event import Control, Event
from flightlog.wire import payload as payloads

Part = Literal["base", "live"]
Writers = tuple[tuple[int, int], ...]  # (seq, number) of each change of writer, in order

_TAKEOVERS = frozenset({"session_started", "session_resumed", "session_reopened"})


class Head(Struct, frozen=True, gc=False):
    """The last event that counts: where the next one must fit."""

    seq: int = 0
    digest: str | None = None
    sequence: int = 0
    part: Part = "live"
    writers: Writers = ()

    @property
    def writer(self) -> int:
        """The writer number in force."""
        return self.writers[-1][1] if self.writers else 0


def agree(one: Writers, other: Writers, *, upto: int) -> bool:
    """Whether two chains of one log are the same up to a seq: who won a branch began to write."""
    return [each for each in one if each[0] <= upto] == [each for each in other if each[0] <= upto]


class Stray(Struct, frozen=True):
    """A message on the subject that is no event of the session: kept, reported, never folded."""

    sequence: int
    seq: int
    digest: str
    why: str


class Pin(Struct, frozen=True):
    """A branch won by a later message: at `seq`, after `prev`, only `sequence` counts."""

    seq: int
    prev: str | None
    sequence: int
    number: int


class Branch(Exception):
    """A later chain wins over what was counted: read again from before the branch, with the pin."""

    def __init__(self, pin: Pin) -> None:
        self.pin = pin
        super().__init__(f"a higher writer branched off at seq {pin.seq}")


class Gap(Struct, frozen=True):
    """The first message that nothing explains: damage, unless a later event still fits."""

    seq: int
    sequence: int
    expected: str
    found: str


class Chain:
    """Follows one session's messages in stream order and says which of them count.

    Memory grows with the number of strays, not of events.
    """

    def __init__(self, session: str, head: Head, pins: tuple[Pin, ...] = ()) -> None:
        self.session = session
        self.head = head
        self.strays: list[Stray] = []
        self.gap: Gap | None = None
        self._pins = {(pin.seq, pin.prev): pin for pin in pins}
        self._branches: set[str] = set()  # strays whose place is explained
        self._early: dict[str, Event] = {}  # by their prev: strays that nothing explains

    def offer(self, message: Message, part: Part) -> Event | Control | None:
        """The event or control message that counts, or None for a stray; raises `Branch`."""
        try:
            found = events.decode(message.body, sequence=message.sequence)
        except InvalidEvent:
            self._stray(message.sequence, 0, events.digest_of(message.body), "no event")
            return None
        if found.session_id != self.session:
            self._stray(message.sequence, 0, events.digest_of(message.body), "another session's")
            return None
        if isinstance(found, Control):
            return found
        if self._fits(found, head := self.head):
            return self._count(found, head, part)
        self._reject(found)
        return None

    def _fits(self, event: Event, head: Head) -> bool:
        if event.prev != head.digest or event.seq != head.seq + 1:
            return False
        pin = self._pins.get((event.seq, event.prev)) if self._pins else None
        return pin is None or pin.sequence == event.sequence

    def _count(self, event: Event, head: Head, part: Part) -> Event:
        writers = head.writers
        if event.type in _TAKEOVERS and (number := takeover(event)) > head.writer:
            writers += ((event.seq, number),)
        self.head = Head(event.seq, event.digest, event.sequence, part, writers)
        early = self._early.get(event.digest) if self._early else None
        self.gap = self._gap(early) if early else None
        return event

    def _reject(self, event: Event) -> None:
        number = takeover(event)
        known = self._pins.get((event.seq, event.prev))
        beats = max(self.in_force(event.seq), known.number if known else 0)
        if event.seq <= self.head.seq and number > beats:
            raise Branch(Pin(event.seq, event.prev, event.sequence, number))
        if self._explained(event):
            self._branches.add(event.digest)
        else:
            self._early[str(event.prev)] = event
            self.gap = self.gap or self._gap(event)
        self._stray(event.sequence, event.seq, event.digest, _why(event, self.head))

    def _explained(self, event: Event) -> bool:
        """It leaves what counts, here or further back, or goes on with a stray that does."""
        here = event.seq == self.head.seq + 1 and event.prev == self.head.digest
        return here or event.seq <= self.head.seq or event.prev in self._branches

    def _gap(self, event: Event) -> Gap:
        wanted = f"seq {self.head.seq + 1} after {self.head.digest}"
        early = " too early" if event.prev == self.head.digest else ""
        found = f"seq {event.seq} after {event.prev}{early}"
        return Gap(self.head.seq, event.sequence, wanted, found)

    def _stray(self, sequence: int, seq: int, digest: str, why: str) -> None:
        self.strays.append(Stray(sequence, seq, digest, why))

    def in_force(self, seq: int) -> int:
        """The writer number that the counted event at `seq` was written under."""
        at = bisect_right(self.head.writers, seq, key=lambda change: change[0])
        return self.head.writers[at - 1][1] if at else 0


def takeover(event: Event) -> int:
    """The writer number that this event brings into force, or 0."""
    if event.type not in _TAKEOVERS:
        return 0
    payload = payloads.decode(event.type, event.raw)
    if isinstance(payload, payloads.SessionStarted | payloads.SessionResumed):
        return payload.writer.number
    return 0


def _why(event: Event, head: Head) -> str:
    if event.digest == head.digest:
        return "stored twice"
    return "branch" if event.seq <= head.seq + 1 else "out of place"
