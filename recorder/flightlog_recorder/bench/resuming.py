"""Resuming: a long session against a short one of equal context and tail, and against the floor."""

import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import redis.asyncio as redis
from msgspec import Struct

from flightlog.snapshot import SESSION, Snapshot
from flightlog.wire import subject as names
from flightlog_recorder.bench import script
from flightlog_recorder.bench.bed import Bed
from flightlog_recorder.bench.row import Laps, Row, duration, spread

BY_SHORT, BY_FLOOR = 1.5, 3.0  # targets, at most
CONTEXT_TURNS = 40  # a context that is worth a snapshot, and more events than the longest tail


class Prepared(Struct, frozen=True):
    """A closed session with a snapshot, opened by its key."""

    key: str
    session: str
    snapshot: Snapshot


async def rows(bed: Bed) -> AsyncIterator[Row]:
    """Both comparisons, from the same rounds."""
    sizes = bed.sizes
    short = await _prepare(bed, "short", sizes.short_session)
    long = await _prepare(bed, "long", sizes.long_session)
    shorts, longs, floors = await _laps(bed, short, long)
    note = f"tail from {sizes.tail}, snapshot {_weight(long.snapshot) // 1024} KiB"
    yield duration(
        f"resume at {sizes.long_session:,} events",
        Laps(shorts, longs),
        floor_name=f"resume at {sizes.short_session:,} events",
        target=BY_SHORT,
        note=f"{note}, {spread(longs)}",
    )
    yield duration(
        "the same, by the floor",
        Laps(floors, longs),
        floor_name="Redis GET + batched direct get",
        target=BY_FLOOR,
        note=note,
    )


async def _prepare(bed: Bed, key: str, count: int) -> Prepared:
    """Long history first, then the conversation that both have in their context and tail."""
    async with bed.log.session(key=key) as s:
        session = s.id
    await script.lengthen(bed.log, session, count - CONTEXT_TURNS * script.EVENTS_A_TURN)
    async with bed.log.session(key=key) as s:
        await script.converse(s, CONTEXT_TURNS)
    snapshot = await script.snapshot(bed.log, session, behind=bed.sizes.tail)
    return Prepared(key, session, snapshot)


def _weight(snapshot: Snapshot) -> int:
    return len(snapshot.cut.state) + sum(map(len, snapshot.cut.pieces.values()))


async def _laps(
    bed: Bed, short: Prepared, long: Prepared
) -> tuple[list[float], list[float], list[float]]:
    shorts, longs, floors = list[float](), list[float](), list[float]()
    client = redis.Redis.from_url(bed.servers.redis_url)
    turns: list[tuple[list[float], Callable[[], Awaitable[float]]]] = [
        (shorts, lambda: _open(bed, short)),
        (longs, lambda: _open(bed, long)),
        (floors, lambda: _bare(bed, client, long)),
    ]
    for n in range(1 + bed.sizes.opens):
        for laps, work in turns[n % 3 :] + turns[: n % 3]:
            gc.collect()
            laps.append(await work())
    await client.aclose()
    return shorts[1:], longs[1:], floors[1:]


async def _open(bed: Bed, prepared: Prepared) -> float:
    """Seconds from the key to a session that is ours; leaving it is not counted."""
    began = time.perf_counter()
    async with bed.log.session(key=prepared.key) as s:
        took = time.perf_counter() - began
        if s.resumed_from[0] != prepared.snapshot.seq:
            raise RuntimeError("the benchmark's resume did not use its snapshot")
    return took


async def _bare(bed: Bed, client: "redis.Redis", prepared: Prepared) -> float:
    """Seconds for what no resume can do without: fetch the snapshot, read the same tail."""
    key = f"flightlog:session:{{{bed.log.tenant}.{prepared.session}}}:snapshots"
    subject = names.log_subject(bed.log.tenant, prepared.session, "live")
    stream = bed.log.bus.layout.stream_of(prepared.session)
    began = time.perf_counter()
    if await client.hget(key, f"{SESSION.name}:{SESSION.version}") is None:
        raise RuntimeError("the benchmark's snapshot is not where it should be")
    await bed.floor.read(stream, subject, start=prepared.snapshot.sequence)
    return time.perf_counter() - began
