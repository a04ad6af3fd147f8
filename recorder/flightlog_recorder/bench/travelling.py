"""Time travel: a state at any seq by the length of the log, what that costs, and copying a fork."""

import gc
import time
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import redis.asyncio as redis

from flightlog.snapshot import SESSION
from flightlog.wire import subject as names
from flightlog_recorder.bench import replica, row, script
from flightlog_recorder.bench.bed import Bed
from flightlog_recorder.bench.row import Laps, Row

BY_SHORT = 3.0  # target for a state in a long session by one in a short one, at most
BY_BATCHES = 0.5  # target for a fork by bare atomic batches of the same bytes, at least
_BATCH = 256  # events in one of those
_FORKS = 7  # rounds, at most: a fork is long enough to be measured


async def rows(bed: Bed) -> AsyncIterator[Row]:
    """States first, then the bytes in Redis that they need, then forks."""
    short, long = names.mint(), names.mint()
    sizes = {short: bed.sizes.short_session, long: bed.sizes.distant}
    for session, count in sizes.items():
        await script.ramble(bed.log, session, count)
    async with replica.running(bed):
        for session, count in sizes.items():
            await replica.projected(bed, session, count, among=sum(sizes.values()))
    yield await _states(bed, short, long)
    for session, count in sizes.items():
        yield await _history(bed, session, count)
    yield await _fork(bed)


async def _states(bed: Bed, short: str, long: str) -> Row:
    counts = {short: bed.sizes.short_session, long: bed.sizes.distant}
    took: dict[str, list[float]] = {short: [], long: []}
    chance = Random(0)  # noqa: S311 - places to look at
    for n in range(1 + 4 * bed.sizes.opens):
        for session in (short, long) if n % 2 else (long, short):
            seq = chance.randint(1, counts[session])
            gc.collect()
            began = time.perf_counter()
            state = await bed.log.state(session, at=seq)
            took[session].append(time.perf_counter() - began)
            if state.seq != seq:
                raise RuntimeError("the benchmark's state is that of another event")
    laps = Laps(took[short][1:], took[long][1:])
    return row.medians(
        f"state at any seq of {counts[long]:,} events",
        laps,
        floor_name=f"of {counts[short]:,} events",
        target=BY_SHORT,
        note=f"messages of 1 KiB, compacted every {script.COMPACTED}; {row.spread(laps.ours)}",
    )


async def _history(bed: Bed, session: str, count: int) -> Row:
    """What Redis holds of a session's snapshots: all of it, and of that the heads alone."""
    key = f"flightlog:session:{{{bed.log.tenant}.{session}}}:snapshots"
    async with redis.Redis.from_url(bed.servers.redis_url) as client:
        held = float(await client.memory_usage(key, samples=0) or 0)
        heads, number = 0, 0
        async for field, value in _fields(client, key):
            if field.partition(b"@")[2].isdigit():
                heads, number = heads + len(value), number + 1
    body = len((await anext(aiter(bed.log.read(session, after=1, until=2)))).body)
    return Row(
        name=f"Redis for an event, all its past included, {count:,} events",
        unit="B",
        measured=held / count,
        floor=body,
        floor_name="its body",
        ratio=held / count / body,
        at_most=True,
        note=f"{number} heads kept, {heads / count:.0f} B of it",
    )


async def _fields(client: "redis.Redis", key: str) -> AsyncIterator[tuple[bytes, bytes]]:
    found: Any
    async for found in client.hscan_iter(key, match=f"{SESSION.name}:{SESSION.version}@*"):
        yield found


async def _fork(bed: Bed) -> Row:
    count = bed.sizes.copied
    session = names.mint()
    await script.plant(bed.log, session, count)
    bodies = [event.body async for event in bed.log.read(session)]

    async def floor() -> None:
        await bed.floor.batches(bodies, size=_BATCH)

    async def ours() -> None:
        await bed.log.fork(session)

    laps = await row.in_turns(floor, ours, rounds=min(_FORKS, bed.sizes.rounds))
    return row.rate(
        f"copy fork of {count:,} events",
        laps,
        count=count,
        floor_name=f"bare atomic batches of {_BATCH}",
        target=BY_BATCHES,
        note=row.spread(laps.ours),
    )
