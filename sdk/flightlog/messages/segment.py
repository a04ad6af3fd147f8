"""What a context is made of: entries, in segments that old and new states share."""

from collections.abc import Callable, Iterable, Iterator
from typing import cast

import msgspec
from msgspec import Raw, Struct, field

from flightlog.wire.payload import NULL, Outcome

SIZE = 64  # entries in a closed segment: a tail that long is copied in 0.1 us


class Sent(Struct, frozen=True, tag="sent", gc=False, omit_defaults=True):
    """A message that the harness sent and no event holds; `seq` is its model_request.

    Messages in a row that together are the results of one message's calls are one entry, a list.
    """

    seq: int
    message: Raw
    provider: str = "anthropic"


class Said(Struct, frozen=True, tag="user", gc=False):
    """What a user_message said, or (origin `summary`) what a compact event left."""

    seq: int
    content: Raw
    origin: str = "human"


class Answer(Struct, frozen=True, tag="assistant", gc=False, omit_defaults=True):
    """A main model_response: the provider's own message."""

    seq: int
    message: Raw
    provider: str = "anthropic"


class Slot(Struct, frozen=True, gc=False):
    """Where the result of one announced call goes; `outcome` is None until it is there."""

    call_id: str
    outcome: Outcome | None = None
    output: Raw = NULL


class Results(Struct, frozen=True, tag="results", gc=False, omit_defaults=True):
    """The results of the calls that the model_response at `seq` announced, in its order.

    It stands behind its answer from the start, so nothing that comes later can split the pair.
    """

    seq: int
    slots: tuple[Slot, ...]
    provider: str = "anthropic"


Entry = Sent | Said | Answer | Results


class Segment(Struct, frozen=True, dict=True, eq=False):
    """`SIZE` entries in a row; never changed, shared by every state that holds them.

    `held` are the entries, or their JSON: it is read when somebody asks for them.
    """

    held: tuple[Entry, ...] | Raw = field(name="entries")

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries. Raises `msgspec.DecodeError` for JSON that is none."""
        if isinstance(self.held, tuple):
            return self.held
        known = vars(self)
        if "entries" not in known:
            known["entries"] = _read(self.written)
        return cast("tuple[Entry, ...]", known["entries"])

    @property
    def written(self) -> Raw | bytes:
        """The entries as JSON."""
        return _encode(self.held) if isinstance(self.held, tuple) else self.held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Segment) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)


class Packed(Segment, frozen=True, dict=True, eq=False, kw_only=True):
    """A segment that a snapshot holds: `read` unpacks its JSON, which is not kept."""

    held: Raw = NULL
    read: Callable[[], bytes]

    @property
    def written(self) -> Raw | bytes:
        return self.read()


_read = msgspec.json.Decoder(tuple[Entry, ...]).decode
_encode = msgspec.json.Encoder().encode


class Entries(Struct, frozen=True):
    """The entries of a context: closed segments and an open tail. Never changed."""

    closed: tuple[Segment, ...] = ()
    tail: tuple[Entry, ...] = ()

    def __len__(self) -> int:
        return len(self.closed) * SIZE + len(self.tail)

    def __iter__(self) -> Iterator[Entry]:
        for segment in self.closed:
            yield from segment.entries
        yield from self.tail

    def __reversed__(self) -> Iterator[Entry]:
        yield from reversed(self.tail)
        for segment in reversed(self.closed):
            yield from reversed(segment.entries)

    def __getitem__(self, index: int) -> Entry:
        at, place = divmod(index, SIZE)
        return self.closed[at].entries[place] if at < len(self.closed) else self.tail[place]

    def kept(self) -> "Entries":
        """The same with every segment's JSON in it: what can be written as a whole."""
        held = [Segment(Raw(s.written)) if isinstance(s, Packed) else s for s in self.closed]
        return Entries(tuple(held), self.tail)

    def add(self, *entries: Entry) -> "Entries":
        """With these behind the last."""
        closed, tail = self.closed, self.tail + entries
        while len(tail) >= SIZE:
            closed, tail = (*closed, Segment(tail[:SIZE])), tail[SIZE:]
        return Entries(closed, tail)

    def take(self, count: int) -> "Entries":
        """The first `count` alone."""
        if count >= len(self):
            return self
        whole, rest = divmod(max(0, count), SIZE)
        last = self.closed[whole].entries if whole < len(self.closed) else self.tail
        return Entries(self.closed[:whole], last[:rest])

    def after(self, count: int) -> tuple[Entry, ...]:
        """All but the first `count`."""
        whole, rest = divmod(max(0, count), SIZE)
        if whole >= len(self.closed):
            return self.tail[count - len(self.closed) * SIZE :]
        later = [entry for segment in self.closed[whole:] for entry in segment.entries]
        return (*later[rest:], *self.tail)

    def insert(self, index: int, *entries: Entry) -> "Entries":
        """With these before the one at `index`."""
        if index >= len(self):
            return self.add(*entries)
        return self.take(index).add(*entries, *self.after(index))

    def put(self, index: int, entry: Entry) -> "Entries":
        """With this one instead of the one at `index`."""
        at, place = divmod(index, SIZE)
        if at >= len(self.closed):
            return Entries(self.closed, _replaced(self.tail, place, entry))
        changed = Segment(_replaced(self.closed[at].entries, place, entry))
        return Entries((*self.closed[:at], changed, *self.closed[at + 1 :]), self.tail)


def of(entries: Iterable[Entry]) -> Entries:
    """Entries from the first to the last."""
    return Entries().add(*entries)


def _replaced(entries: tuple[Entry, ...], place: int, entry: Entry) -> tuple[Entry, ...]:
    return entries[:place] + (entry,) + entries[place + 1 :]  # noqa: RUF005 - twice as fast
