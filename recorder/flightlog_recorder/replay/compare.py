"""Where two sessions part: the last event that both have, and what each did then."""

from contextlib import aclosing

from msgspec import Raw, Struct

from flightlog.event import Event
from flightlog.wire import payload as payloads
from flightlog.wire.payload import SessionForked
from flightlog_recorder.replay.delta import Change, delta
from flightlog_recorder.replay.picture import opened, whole
from flightlog_recorder.replay.tape import Tape


class Parting(Struct, frozen=True):
    """`same` is the seq up to which both agree; `one` and `other` are the events behind it.

    `forked_at` is the branch point, where one says that it is a fork of the other.
    """

    same: int
    one: Event | None
    other: Event | None
    changes: tuple[Change, ...] = ()
    forked_at: int | None = None


async def compare(one: Tape, other: Tape) -> Parting:
    """Read both until they differ in type or payload; ids, digests and times are their own."""
    same = 0
    async with aclosing(one.events()) as left, aclosing(other.events()) as right:
        while True:
            first, second = await anext(left, None), await anext(right, None)
            if first is None or second is None or not _agree(first, second):
                break
            same = first.seq
    fork = _fork(second, one.session) or _fork(first, other.session)
    return Parting(same, first, second, _changes(first, second), fork)


def _agree(one: Event, other: Event) -> bool:
    if one.type != other.type or one.parent_seq != other.parent_seq:
        return False
    return bytes(one.raw) == bytes(other.raw) or not _delta(one.raw, other.raw)


def _changes(one: Event | None, other: Event | None) -> tuple[Change, ...]:
    if one is None or other is None or one.type != other.type:
        return ()
    return tuple(_delta(one.raw, other.raw))


def _delta(one: Raw, other: Raw) -> list[Change]:
    return delta(whole(opened(one)), whole(opened(other)))


def _fork(event: Event | None, source: str) -> int | None:
    """The branch point, if the event says that its session is a fork of `source`."""
    if event is None:
        return None
    said = payloads.decode(event.type, event.raw)
    return said.seq if isinstance(said, SessionForked) and said.session == source else None
