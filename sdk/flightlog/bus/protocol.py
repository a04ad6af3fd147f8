"""The bus as the protocols see it: what is sent, what is answered, what is read. No client here."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from flightlog.bus.answer import Answer
from flightlog.wire.layout import Layout


class Message(Struct, frozen=True, gc=False):
    """One stored message."""

    subject: str
    sequence: int
    body: bytes


class Outgoing(Struct, frozen=True, gc=False):
    """One message to be stored; `headers` are ours, the expectation is added on sending."""

    body: bytes
    headers: dict[str, str]


class Page(Struct, frozen=True):
    """Consecutive messages of one subject; `more` is false where this replica's copy ends."""

    messages: list[Message]
    more: bool


Heard = Callable[[Message], Awaitable[None]]
Missed = Callable[[], None]


class Listening(Protocol):
    """A core subscription that survives reconnects."""

    async def close(self) -> None: ...


class Bus(Protocol):
    """What Flightlog needs of NATS. Every call has a deadline; `BusUnavailable` when it passes."""

    @property
    def layout(self) -> Layout:
        """Which stream holds which slot."""
        ...

    @property
    def max_payload(self) -> int:
        """The largest body plus headers that a message may have, in bytes."""
        ...

    async def append(
        self, subject: str, messages: Sequence[Outgoing], *, expected: int, timeout: float
    ) -> Answer:
        """Store messages on `subject` if its last stream sequence is `expected`: all or none."""
        ...

    async def after(
        self, stream: str, subject: str, sequence: int, *, leader: bool = False
    ) -> Message | None:
        """The first message on `subject` after `sequence`; with `leader`, as the leader sees it."""
        ...

    async def last(self, stream: str, subject: str) -> Message | None:
        """The last message on `subject`, as the leader sees it, or None."""
        ...

    async def page(self, stream: str, subject: str, start: int, *, most: int | None = None) -> Page:
        """A page of messages on `subject` from stream sequence `start` on; may lag behind acks.

        It holds as many as are read at once, or `most` if those are fewer.
        """
        ...

    async def purge(self, stream: str, subject: str, *, below: int) -> int:
        """Delete a subject's messages below a stream sequence, for good; returns how many."""
        ...

    async def listen(self, subject: str, heard: Heard, *, missed: Missed = ...) -> Listening:
        """Call `heard` for each core message on `subject`; hints, at most once.

        `missed` is called when a lost connection is back: hints may have passed meanwhile.
        """
        ...

    async def say(self, subject: str, body: bytes) -> None:
        """Publish on core NATS: no ack, not stored."""
        ...


class Connection(Bus, Protocol):
    """A bus that is held: it can be closed, and opened a second time."""

    async def twin(self, *, echo: bool) -> "Connection":
        """Another connection to the same servers; with `echo` it hears what it publishes itself."""
        ...

    async def close(self) -> None:
        """Close for good; nothing is flushed."""
        ...
