"""Known states by seq, a bounded number of them and of bytes: what is kept spreads as it grows."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from msgspec import Raw, Struct

from flightlog.messages.segment import Segment
from flightlog.names import Part
from flightlog.snapshot import SESSION
from flightlog.state import SessionState
from flightlog_recorder.replay.source import START, Place

MOST = 512  # states kept for jumps: in 1,000,000 events a jump then folds 4,000 at most
BYTES = 64 << 20  # that they hold beside the one that holds most: a context is needed anyway
POINTER = 8  # bytes


class Places:
    """States to go on from; the beginning is always among them."""

    def __init__(self, *, most: int = MOST, most_bytes: int = BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._spacing = 1
        self.forget()

    def forget(self) -> None:
        """Know only the beginning."""
        self._seqs = [0]
        self._places = {0: Place(START, SESSION.initial())}
        self._weights = _Weights()

    def __len__(self) -> int:
        return len(self._seqs)

    def before(self, seq: int) -> Place:
        """The nearest place at or before the seq."""
        return self._places[self._seqs[bisect_right(self._seqs, max(0, seq)) - 1]]

    def keep(self, place: Place) -> None:
        """Remember the place, unless there is one near enough."""
        seq = place.head.seq
        at = bisect_right(self._seqs, seq)
        around = self._seqs[max(0, at - 1) : at + 1]
        if any(abs(seq - near) < self._spacing for near in around):
            return
        self._seqs.insert(at, seq)
        self._places[seq] = place
        self._weights.add(seq, place.state)
        while len(self) > self._most or (len(self) > 2 and self._weights.beside > self._most_bytes):
            self._thin()

    def _thin(self) -> None:
        self._spacing *= 2
        kept = [0]
        for seq in self._seqs[1:]:
            if seq - kept[-1] >= self._spacing:
                kept.append(seq)
            else:
                self._weights.remove(seq, self._places.pop(seq).state)
        self._seqs = kept


class _Weights:
    """How many bytes some states hold together: what they share counts once."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[int, int]] = {}  # id: how many hold it, its bytes with pieces
        self._whole: dict[int, int] = {}  # seq: what this state holds
        self._total = 0

    @property
    def beside(self) -> int:
        """The bytes of all, but for what the heaviest of them holds."""
        return self._total - max(self._whole.values(), default=0)

    def add(self, seq: int, state: SessionState) -> None:
        own = POINTER * len(state.entries.closed)
        self._total += own
        self._whole[seq] = own + sum(self._take(part) for part in _parts(state))

    def remove(self, seq: int, state: SessionState) -> None:
        self._total -= POINTER * len(state.entries.closed)
        for part in _parts(state):
            self._drop(part)
        del self._whole[seq]

    def _take(self, part: object) -> int:
        count, weight = self._parts.get(id(part), (0, 0))
        if not count:
            pieces = _pieces(part)
            own = POINTER * len(pieces) if pieces else _weight(part)
            self._total += own
            weight = own + sum(self._take(piece) for piece in pieces)
        self._parts[id(part)] = count + 1, weight
        return weight

    def _drop(self, part: object) -> None:
        count, weight = self._parts.pop(id(part))
        if count > 1:
            self._parts[id(part)] = count - 1, weight
            return
        pieces = _pieces(part)
        self._total -= POINTER * len(pieces) if pieces else weight
        for piece in pieces:
            self._drop(piece)


def _parts(state: SessionState) -> Iterator[object]:
    """What a state is made of, in parts that states share by identity."""
    yield from state.entries.closed
    yield from state.entries.tail
    yield from state.calls
    yield from state.params.values()
    for named in (state.values, state.said, state.effects, state.recorded):
        yield from named.closed
        yield from named.tail.values()
    yield from (state.checkpoint, state.result, state.labels, state.policies)


def _pieces(part: object) -> Sequence[object]:
    """What of a part others share without it: a segment's entries were in a tail before."""
    match part:
        case Segment(held=tuple() as entries):
            return entries
        case Part(names=named):
            return list(named.values())
        case _:
            return ()


def _weight(value: object) -> int:
    """Bytes of the texts and JSON in it, roughly."""
    found, waiting = 0, [value]
    while waiting:
        match waiting.pop():
            case Raw() as raw:
                found += memoryview(raw).nbytes
            case str() | bytes() as text:
                found += len(text)
            case Struct() as struct:
                waiting += [getattr(struct, name) for name in struct.__struct_fields__]
            case dict() as named:
                waiting += [*named, *named.values()]
            case list() | tuple() as items:
                waiting += items
            case _:
                pass
        found += POINTER
    return found
