"""Appending under an expectation: what to send next, and what an answer means. Pure, without IO.

The one rule behind all of it (DESIGN section 4): what was sent keeps its bytes and its place at the
head of the queue until the log itself says what became of it.
"""

from collections import deque
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from flightlog import event as events
from flightlog.bus.answer import Acked, Answer, Busy, Conflict, Full, Oversized, Unclear
from flightlog.bus.protocol import Message, Outgoing
from flightlog.errors import (
    Fenced,
    FlightlogError,
    InvalidEvent,
    LogCorrupt,
    LogFull,
    SessionPurged,
    TooLarge,
)
from flightlog.event import Event
from flightlog.reading.chain import Head, takeover
from flightlog.writing.draft import Offered, Place

BATCH_EVENTS = 256  # DESIGN section 4: beyond it a batch gains nothing
BATCH_BYTES = 512 * 1024
GROUP_FROM_R1, GROUP_FROM_R3 = 8, 2  # below it singles are faster (R1 0.6 ms, batch 2.6 to 5 ms)
HEADER_ROOM = 1024  # bytes kept free under max_payload for the headers


class Send(Struct, frozen=True):
    """Store these messages, expecting `expected` to be the subject's last stream sequence."""

    messages: Sequence[Outgoing]
    expected: int


class ReadAfter(Struct, frozen=True):
    """Read the first message on our subject after this stream sequence; `leader`: from there."""

    sequence: int
    leader: bool = False


class Pause(Struct, frozen=True):
    """Wait before the next try; `attempt` counts from 1 since the last progress."""

    attempt: int
    why: str


class Stored(Struct, frozen=True):
    """These events are in the log, for good; `count` drafts leave the queue."""

    events: list[Event]


class Failed(Struct, frozen=True):
    """Definitely refused: nothing of this and of what is queued behind it is stored.

    `final` means that this writer will never append again.
    """

    error: FlightlogError
    final: bool = True


Action = Send | ReadAfter | Pause | Stored | Failed


class _Sent(Struct, frozen=True):
    event: Event
    message: Outgoing


class Writer:
    """The state machine of one session's appends: ask `next()`, then tell it what came back."""

    def __init__(
        self,
        session: str,
        head: Head,
        *,
        expected: int,
        harness_version: str,
        number: int,
        replicas: int = 1,
    ) -> None:
        """`expected` is the last stream sequence on our subject, strays included; 0 for none."""
        self.session, self.head, self.number = session, head, number
        self._harness_version = harness_version
        self._group_from = GROUP_FROM_R3 if replicas > 1 else GROUP_FROM_R1
        self._queue: deque[Offered] = deque()
        self._sent: list[_Sent] = []
        self._singles = False
        self._whole = False  # some of what was sent belongs together
        self._unclear = False  # an earlier try of these bytes may be stored
        self._comparing = False  # some of what was sent is stored: look for the rest
        self._refusal: FlightlogError | None = None  # of a later try; the leader has the last word
        self._attempt = 0
        self.expected = expected

    @property
    def idle(self) -> bool:
        """Nothing is sent and nothing is queued."""
        return not self._sent and not self._queue

    def offer(self, draft: Offered) -> None:
        """Queue a draft behind all others."""
        self._queue.append(draft)

    def withdraw(self, draft: Offered) -> bool:
        """Take back a draft that was not sent yet; False when it is too late."""
        for at, queued in enumerate(self._queue):
            if queued is draft:
                del self._queue[at]
                return True
        return False

    def next(self) -> Send | ReadAfter:
        """What to do now: resolve what was sent, byte for byte, or else send a group."""
        if not self._sent:
            self._whole = False
            self._sent = self._compose()
        if self._comparing:
            return ReadAfter(self.expected)
        messages = [sent.message for sent in self._sent]
        return Send(messages[:1] if self._singles else messages, self.expected)

    def _compose(self) -> list[_Sent]:
        """seq, prev, ts and bytes are made when a group leaves; from then on they never change."""
        group: list[_Sent] = []
        wanted = BATCH_EVENTS if len(self._queue) >= self._group_from else 1
        size, seq, prev, joined = 0, self.head.seq, self.head.digest, False
        now = events.now()
        while self._queue and (joined or len(group) < wanted):
            size += self._queue[0].size
            if group and size > BATCH_BYTES and not joined:
                break
            draft = self._queue.popleft()
            joined = draft.joined
            self._whole = self._whole or joined
            event = draft.at(Place(self.session, seq + 1, prev, self._harness_version, now))
            group.append(_Sent(event, Outgoing(event.body, self._headers(event, draft))))
            seq, prev = event.seq, event.digest
        return group

    def _headers(self, event: Event, draft: Offered) -> dict[str, str]:
        headers = {
            "Flightlog-Type": event.type,
            "Flightlog-Seq": str(event.seq),
            "Flightlog-Writer": str(self.number),
        }
        return headers | {"traceparent": draft.traceparent} if draft.traceparent else headers

    def answered(self, answer: Answer) -> Action:
        """What the answer to the last `Send` means (the answer table)."""
        match answer:
            case Acked(sequence=sequence):
                return self._acked(sequence)
            case Conflict(last=last) if last is not None and last < self.expected:
                return self._rolled_back(last)
            case Conflict():
                return ReadAfter(self.expected)
            case Full(stream=stream):
                return self._refuse(LogFull(self.session, stream))
            case Oversized(limit=limit):
                size = max(len(sent.event.body) for sent in self._sent)
                return self._refuse(TooLarge("the event", size, limit))
            case Busy():
                self._singles = len(self._sent) < GROUP_FROM_R1 and not self._whole
                return self._pause("the stream has too many open batches")
            case Unclear(why=why):
                self._unclear = True
                return self._pause(why)

    def _acked(self, sequence: int) -> Stored:
        count = 1 if self._singles else len(self._sent)
        stored = [
            replace(sent.event, sequence=sequence - count + 1 + n)
            for n, sent in enumerate(self._sent[:count])
        ]
        return self._advance(stored)

    def _advance(self, stored: list[Event]) -> Stored:
        del self._sent[: len(stored)]
        self._singles = self._singles and bool(self._sent)
        self._comparing = self._comparing and bool(self._sent)
        self._unclear = self._comparing  # the rest of a batch whose first is stored, is so too
        self._refusal = None
        self._attempt = 0
        for event in stored:
            number, writers = takeover(event), self.head.writers
            if number > self.head.writer:
                writers += ((event.seq, number),)
            self.head = Head(event.seq, event.digest, event.sequence, "live", writers)
        self.expected = self.head.sequence
        return Stored(stored)

    def _refuse(self, error: FlightlogError) -> Action:
        if self._unclear:
            self._refusal = error
            return ReadAfter(self.expected, leader=True)
        self._sent.clear()
        self._queue.clear()
        self._refusal = None
        return Failed(error, final=False)

    def _pause(self, why: str) -> Pause:
        self._attempt += 1
        return Pause(self._attempt, why)

    def _rolled_back(self, last: int) -> Failed:
        return Failed(
            LogCorrupt(
                self.session,
                self.head.seq,
                expected=f"a last stream sequence of {self.expected} or more",
                found=str(last),
            )
        )

    def found(self, message: Message | None) -> Action:
        """What the first message after our expectation means; None: there is none in sight."""
        if message is None:
            return self._found_nothing()
        if message.body == self._sent[0].event.body:
            self._comparing = True
            return self._advance([replace(self._sent[0].event, sequence=message.sequence)])
        if _is_tombstone(message, self.session):
            return Failed(SessionPurged(self.session))
        return Failed(Fenced(self.session, self.head.seq))

    def _found_nothing(self) -> Action:
        refusal, self._refusal = self._refusal, None
        if isinstance(refusal, LogFull):  # an earlier try may be on its way, and find room
            return self._pause("the stream is full")
        if refusal is not None:
            self._unclear = False
            return self._refuse(refusal)
        if self._comparing:
            self._comparing = False
            return self.next()
        return self._pause("the conflicting message is not in sight yet")

    def overtaken_by(self, message: Message) -> FlightlogError | None:
        """Whether a message behind our last event ends our time as the writer."""
        if _is_tombstone(message, self.session):
            return SessionPurged(self.session)
        found = _decoded(message)
        if isinstance(found, Event) and takeover(found) > self.number:
            return Fenced(self.session, self.head.seq)
        return None


def _is_tombstone(message: Message, session: str) -> bool:
    found = _decoded(message)
    if not isinstance(found, events.Control):
        return False
    return found.type == "tombstone" and found.session_id == session


def _decoded(message: Message) -> Event | events.Control | None:
    try:
        return events.decode(message.body)
    except InvalidEvent:
        return None
