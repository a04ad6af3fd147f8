"""Appending: one at a time, many callers in one session, many sessions in one process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from flightlog import Session
from flightlog.event import compose
from flightlog.wire import payload as payloads
from flightlog.wire import subject as names
from flightlog.wire.carry import pack
from flightlog_recorder.bench import row
from flightlog_recorder.bench.bed import Bed
from flightlog_recorder.bench.row import Row

SINGLES, CALLERS, SESSIONS = 0.85, 0.8, 0.7  # targets


async def rows(bed: Bed) -> AsyncIterator[Row]:
    """The three ways to append."""
    yield await one_at_a_time(bed)
    yield await many_callers(bed)
    yield await many_sessions(bed)


async def one_at_a_time(bed: Bed) -> Row:
    """Each append waits for the one before."""
    count, data = bed.sizes.singles, _data(bed)
    bodies = _bodies(bed, count)

    async with bed.log.session() as s:

        async def ours() -> None:
            for _ in range(count):
                await s.append("checkpoint", data)

        laps = await row.in_turns(lambda: bed.floor.singles(bodies), ours, rounds=bed.sizes.rounds)
    return row.rate(
        "durable appends, one at a time",
        laps,
        count=count,
        floor_name="bare publish-with-ack",
        target=SINGLES,
        note=row.spread(laps.ours),
    )


async def many_callers(bed: Bed) -> Row:
    """So many tasks append to one session; their appends leave together."""
    callers, each = bed.sizes.callers, bed.sizes.per_caller
    bodies = _bodies(bed, callers * each)

    async with bed.log.session() as s:
        laps = await row.in_turns(
            lambda: bed.floor.batches(bodies, size=callers),
            lambda: _all([s] * callers, each, _data(bed)),
            rounds=bed.sizes.rounds,
        )
    return row.rate(
        f"{callers} callers in one session",
        laps,
        count=callers * each,
        floor_name=f"atomic batches of {callers}",
        target=CALLERS,
        note=row.spread(laps.ours),
    )


async def many_sessions(bed: Bed) -> Row:
    """So many sessions in one process, each appending one at a time."""
    sessions, each = bed.sizes.callers, bed.sizes.per_caller
    bodies = _bodies(bed, each)
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(bed.log.session()) for _ in range(sessions)]
        laps = await row.in_turns(
            lambda: bed.floor.pipelined(bodies, subjects=sessions),
            lambda: _all(opened, each, _data(bed)),
            rounds=bed.sizes.rounds,
        )
    return row.rate(
        f"{sessions} sessions in one process",
        laps,
        count=sessions * each,
        floor_name="bare publish_async",
        target=SESSIONS,
        note=row.spread(laps.ours),
    )


async def _all(sessions: list[Session], each: int, data: object) -> None:
    async def caller(s: Session) -> None:
        for _ in range(each):
            await s.append("checkpoint", data)

    await asyncio.gather(*(caller(s) for s in sessions))


def _data(bed: Bed) -> dict[str, object]:
    return {"label": None, "data": "x" * bed.sizes.body}


def _bodies(bed: Bed, count: int) -> list[bytes]:
    """Bodies as large as those that the SDK will send for the same payload."""
    payload = payloads.encode(payloads.Checkpoint(data=pack("x" * bed.sizes.body)))
    body = compose(
        session_id=names.mint(),
        seq=1_000,
        type="checkpoint",
        payload=payload,
        prev="0" * 64,
        parent_seq=999,
        harness_version="",
    ).body
    return [body] * count
