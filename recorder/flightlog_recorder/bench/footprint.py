"""What Flightlog weighs: bytes stored for a long conversation, its snapshot, and the import."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from statistics import median

from flightlog import state as states
from flightlog.wire.carry import pack
from flightlog_recorder.bench import script
from flightlog_recorder.bench.bed import Bed
from flightlog_recorder.bench.row import Row

_IMPORTS = 7


async def rows(bed: Bed) -> AsyncIterator[Row]:
    """Stored bytes, snapshot bytes, import time."""
    async for each in _stored(bed):
        yield each
    yield await _import_time()


async def _stored(bed: Bed) -> AsyncIterator[Row]:
    turns = bed.sizes.turns
    async with bed.log.session() as s:
        requests = await script.converse(s, turns)
        context = len(pack(s.state.messages()))
        state = len(states.encode(s.state))
        stored = sum([len(event.body) async for event in bed.log.read(s.id)])
    yield Row(
        name=f"stored for {turns} turns of whole contexts",
        unit="KiB",
        measured=stored / 1024,
        floor=context / 1024,
        floor_name="the last context, once",
        ratio=stored / context,
        note=f"all requests together: {sum(requests) // 1024:,} KiB",
    )
    yield Row(
        name=f"snapshot after {turns} turns",
        unit="KiB",
        measured=state / 1024,
        floor=context / 1024,
        floor_name="its context",
        ratio=state / context,
    )


async def _import_time() -> Row:
    ours = [await _python("import flightlog") for _ in range(_IMPORTS)]
    floor = [await _python("import nats, msgspec, redis.asyncio") for _ in range(_IMPORTS)]
    return Row(
        name="import flightlog",
        unit="ms",
        measured=1000 * median(ours),
        floor=1000 * median(floor),
        floor_name="import nats, msgspec, redis",
        ratio=median(ours) / median(floor),
        at_most=True,
        note="a whole Python process each",
    )


async def _python(code: str) -> float:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    await process.wait()
    return time.perf_counter() - began
