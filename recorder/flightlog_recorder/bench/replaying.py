"""Replaying from zero: read, decode, check the chain, and fold."""

from collections.abc import AsyncIterator

from flightlog.wire import subject as names
from flightlog_recorder.bench import row, script
from flightlog_recorder.bench.bed import Bed
from flightlog_recorder.bench.row import Row

BY_FLOOR = 2.0  # target


async def rows(bed: Bed) -> AsyncIterator[Row]:
    """Of cheap events of 1 KiB, without the fold and with it."""
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
