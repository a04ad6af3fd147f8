"""A passage of a session: what lies between a known place and a seq, and nothing behind that.

That it counts is told by where the log stands: a branch that was won later was begun by a writer of
a higher number, and the head of the log names all writers and where they began.
"""

import contextlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar

from msgspec.structs import replace

from flightlog import upcast
from flightlog.bus.protocol import Bus
from flightlog.event import WIRE_VERSION, Event
from flightlog.reading import reader
from flightlog.reading.chain import Branch, Head, agree
from flightlog.reading.once import Reading, Unexplained
from flightlog.reading.reader import Folded, Undecodable
from flightlog.snapshot import Projection, Snapshot

S = TypeVar("S")


class Astray(Exception):
    """The passage does not lead to where the log stands: all of it must be read."""


class _Nothing:
    """Where a log stands, and nothing else."""

    name, version = "nothing", 1

    def initial(self) -> None:
        return None

    def apply(self, state: None, event: Event) -> None:  # noqa: ARG002 - of no event
        return state

    def encode(self, state: None) -> bytes:
        return str(state).encode()

    def decode(self, raw: bytes) -> None:  # noqa: ARG002 - of any snapshot
        return None


NOTHING: Projection[None] = _Nothing()


async def end(bus: Bus, tenant: str, session: str, snapshot: Snapshot | None) -> Folded[None]:
    """Where the log stands now, read from a snapshot's event on; its pieces are not needed."""
    return await reader.fold(bus, tenant, session, NOTHING, snapshot=snapshot)


async def events(
    bus: Bus, tenant: str, session: str, place: Head, upto: int, *, end: Head
) -> AsyncIterator[list[Event]]:
    """The events behind a place and up to a seq that the log has, page by page.

    Raises `Astray` when they are not what counts, or not all to be had.
    """
    if not agree(place.writers, end.writers, upto=place.seq):
        raise Astray
    reading = Reading(bus, tenant, session, head=place, upto=upto)
    try:
        async with aclosing(reading.batches(at_least=end.sequence)) as batches:
            async for batch in batches:
                head = reading.chain.head
                if not agree(head.writers, end.writers, upto=min(head.seq, upto)):
                    raise Astray
                yield [event for event in batch if event.seq <= upto]
    except (Branch, Unexplained):
        raise Astray from None
    if reading.chain.head.seq < upto:
        raise Astray


async def fold(
    bus: Bus,
    tenant: str,
    session: str,
    projection: Projection[S],
    upto: int,
    *,
    snapshot: Snapshot | None,
    end: Folded[Any],
) -> Folded[S]:
    """Project a session up to a seq that it has; all but `state` and `tail` is that of its end.

    A snapshot that does not fit is not used. Raises `Astray`.
    """
    if snapshot is not None:
        with contextlib.suppress(Astray, Undecodable):
            state = reader.start(projection, snapshot)
            between = events(bus, tenant, session, reader.head_of(snapshot), upto, end=end.head)
            state, tail = await _applied(projection, state, between)
            return replace(end, state=state, tail=tail, used=snapshot)
    between = events(bus, tenant, session, reader.head_of(None), upto, end=end.head)
    state, tail = await _applied(projection, projection.initial(), between)
    return replace(end, state=state, tail=tail, used=None)


async def _applied(
    projection: Projection[S], state: S, batches: AsyncIterator[list[Event]]
) -> tuple[S, int]:
    tail = 0
    async for batch in batches:
        for event in batch:
            lifted = event if event.v == WIRE_VERSION else upcast.lift(event)
            state = projection.apply(state, lifted)
        tail += len(batch)
    return state, tail
