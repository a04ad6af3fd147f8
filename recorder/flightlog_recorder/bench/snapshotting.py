"""What snapshots of one growing session cost: bytes written and held per event, and their time."""

import hashlib
import time
from collections.abc import AsyncIterator, Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from flightlog import event as events
from flightlog import snapshot as snapshots
from flightlog.cache import piece, shelf
from flightlog.cache.shelf import Held, Shelf
from flightlog.event import Event
from flightlog.snapshot import SESSION, Snapshot
from flightlog.state import SessionState
from flightlog.wire.carry import pack
from flightlog_recorder.bench.bed import Bed
from flightlog_recorder.bench.row import Row

EVERY = 100  # events between two snapshots, as the projector takes them
WINDOW = 10  # snapshots that are looked at before each of the sizes
FLAT = 1.3  # the largest session by the smallest, at most
_WORDS = [f"{n * 40_503 % 65_536:05x}" for n in range(2_000)]


class Cost(Struct, frozen=True):
    """Bytes per event in the window before `events`, packed and plain; seconds for a snapshot."""

    events: int
    written: float
    plain: float
    held: float
    seconds: float


async def rows(bed: Bed) -> AsyncIterator[Row]:
    """Each size by the smallest one: all of it in context, 1 KiB an event."""
    costs = [cost async for cost in _grow(bed, bed.sizes.lengths)]
    first = costs[0]
    for cost in costs[1:]:
        at = f"at {cost.events:,} events"
        note = f"uncompressed {cost.plain:,.0f}"
        yield _row(f"bytes to Redis per event {at}", first, cost.written, first.written, note)
        yield _row(f"bytes in Redis per event {at}", first, cost.held, first.held)
        note = "cut, not sent: all names are gone through, few pieces are made"
        took = _row(f"a snapshot {at}", first, 1000 * cost.seconds, 1000 * first.seconds, note)
        yield replace(took, unit="ms", target=None)


def _row(name: str, first: Cost, measured: float, floor: float, note: str = "") -> Row:
    return Row(
        name=name,
        unit="B",
        measured=measured,
        floor=floor,
        floor_name=f"at {first.events:,}",
        ratio=measured / floor,
        target=FLAT,
        at_most=True,
        note=note,
    )


async def _grow(bed: Bed, sizes: Sequence[int]) -> AsyncIterator[Cost]:
    if bed.log.store is None:
        raise TypeError("the benchmark's log has no Redis")
    stored = Shelf(bed.log.store, bed.log.tenant, "growing", SESSION.name, SESSION.version)
    state, held = SESSION.initial(), shelf.NOTHING
    window: list[tuple[int, int, float]] = []
    weights: dict[str, int] = {}
    while state.seq < sizes[-1]:
        state = _further(state)
        began = time.perf_counter()
        taken = _taken(state)
        took = time.perf_counter() - began
        new = taken.cut.pieces.keys() - weights.keys()
        weights.update({name: len(piece.stored(name, taken.cut.pieces[name])) for name in new})
        head = snapshots.write(taken)
        plain = len(taken.cut.state) + sum(len(taken.cut.pieces[name]) for name in new)
        window = [*window, (len(head) + sum(weights[n] for n in new), plain, took)][-WINDOW:]
        await stored.save(taken, held)
        held = Held(head, taken)
        if state.seq in sizes:
            count = EVERY * len(window)
            yield Cost(
                state.seq,
                sum(each[0] for each in window) / count,
                sum(each[1] for each in window) / count,
                sum(weights.values()) / state.seq,
                median(each[2] for each in window),
            )


def _further(state: SessionState) -> SessionState:
    for _ in range(EVERY):
        state = SESSION.apply(state, _message(state))
    return state


def _message(state: SessionState) -> Event:
    mixed = hashlib.shake_128(str(state.seq).encode()).digest(2 * 165)  # words for 1 KiB
    said = [_WORDS[int.from_bytes(mixed[at : at + 2]) % 2_000] for at in range(0, 330, 2)]
    return events.compose(
        session_id="growing",
        seq=state.seq + 1,
        type="user_message",
        payload=pack({"content": " ".join(said)}),
        prev=state.digest,
        parent_seq=state.seq or None,
        harness_version="bench",
    )


def _taken(state: SessionState) -> Snapshot:
    return Snapshot(
        projection=SESSION.name,
        version=SESSION.version,
        schema=events.WIRE_VERSION,
        seq=state.seq,
        sequence=state.seq,
        part="live",
        read_to=state.seq,
        digest=state.digest or "",
        writers=state.writers,
        cut=snapshots.cut(SESSION, state),
    )
