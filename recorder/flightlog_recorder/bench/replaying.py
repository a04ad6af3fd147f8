"""Replaying from zero, and what it needs of memory."""

import asyncio
import sys
from collections.abc import AsyncIterator

from flightlog import subject as names
from flightlog_recorder.bench import row, script
from flightlog_recorder.bench.bed import Bed
from flightlog_recorder.bench.row import Row

BY_FLOOR, FLAT = 0.5, 1.1  # targets: at least, at most
READER = "flightlog_recorder.bench.reader"


async def rows(bed: Bed) -> AsyncIterator[Row]:
    """Speed, then memory."""
    async for each in _speed(bed):
        yield each
    yield await _memory(bed)


async def _speed(bed: Bed) -> AsyncIterator[Row]:
    count = bed.sizes.replay
    session = names.mint()
    await script.plant(bed.log, session, count)
    subject = names.log_subject(bed.log.tenant, session, "live")
    stream = bed.log.bus.layout.stream_of(session)

    async def read() -> None:
        async for _ in bed.log.read(session):
            pass

    async def fold() -> None:
        await bed.log.state(session)

    for name, work in (("replay", read), ("fold", fold)):
        laps = await row.in_turns(
            lambda: bed.floor.read(stream, subject), work, rounds=bed.sizes.rounds
        )
        yield row.rate(
            f"{name} from zero, {count:,} events",
            laps,
            count=count,
            floor_name="bare batched direct get",
            target=BY_FLOOR,
            note=row.spread(laps.ours),
        )


async def _memory(bed: Bed) -> Row:
    """Peak memory of a fresh process that folds a long log, by that for a short one."""
    small, large = [await _peak(bed, n) for n in (bed.sizes.small_log, bed.sizes.large_log)]
    return Row(
        name=f"peak memory, fold of {bed.sizes.large_log:,} events",
        unit="MiB",
        measured=large,
        floor=small,
        floor_name=f"fold of {bed.sizes.small_log:,} events",
        ratio=large / small,
        target=FLAT,
        at_most=True,
    )


async def _peak(bed: Bed, count: int) -> float:
    """MiB that a fresh process had at most."""
    session = names.mint()
    await script.plant(bed.log, session, count)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", READER, session, stdout=asyncio.subprocess.PIPE, env=bed.environment()
    )
    said, _ = await process.communicate()
    return int(said) / 1024
