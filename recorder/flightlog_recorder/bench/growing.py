"""What the length of a log changes: bytes on disk for an event, and how fast the next is stored."""

from collections.abc import AsyncIterator
from pathlib import Path

from flightlog.bus import nats_bus
from flightlog.wire import layout
from flightlog.wire import subject as names
from flightlog_recorder.bench import row, script
from flightlog_recorder.bench.bed import Bed
from flightlog_recorder.bench.row import Row

FLAT = 0.9  # target, at least
_KIB = 1024
_COMPRESSIONS = ("s2", "none")


async def rows(bed: Bed) -> AsyncIterator[Row]:
    """Bytes with and without compression, then appends to the shortest and to longer logs."""
    for compression in _COMPRESSIONS:
        async for each in _stored(bed, compression):
            yield each
    first, *others = [await _planted(bed, count) for count in bed.sizes.lengths]
    for count, session in zip(bed.sizes.lengths[1:], others, strict=True):
        yield await _rate(bed, first, session, count)


async def _stored(bed: Bed, compression: str) -> AsyncIterator[Row]:
    if bed.servers.data is None:
        return
    for count in bed.sizes.lengths:
        name = f"BENCH_{compression}_{count}"
        made = script.spoken(names.mint(), count)
        await _create(bed, name, compression)
        await script.put(bed.log.bus, f"{name}.live", made, 0)
        bodies = sum(len(event.body) for event in made) / count
        size = _size(bed.servers.data, name) / count
        yield Row(
            name=f"on disk for an event, {count:,} events, {compression}",
            unit="B",
            measured=size,
            floor=bodies,
            floor_name="its body",
            ratio=size / bodies,
            at_most=True,
        )


async def _create(bed: Bed, name: str, compression: str) -> None:
    """A stream like a log's."""
    bare = await nats_bus.connect_bare(bed.servers.nats_url)
    async with bare:
        config = layout.log_configs(1, replicas=1)[0]
        changed = {"name": name, "subjects": [f"{name}.live"], "compression": compression}
        await nats_bus.create(bare, [{**config, **changed}])


def _size(data: Path, name: str) -> int:
    """Bytes of the files that the server keeps for a stream."""
    found = next(data.rglob(name))
    return sum(path.stat().st_size for path in found.rglob("*") if path.is_file())


async def _planted(bed: Bed, count: int) -> str:
    session = names.mint()
    await script.plant(bed.log, session, count)
    return session


async def _rate(bed: Bed, short: str, long: str, count: int) -> Row:
    """Appends to both sessions in turns, one at a time."""
    each, data = bed.sizes.singles, {"label": None, "data": "x" * _KIB}
    async with bed.log.session(id=short) as a, bed.log.session(id=long) as b:

        async def floor() -> None:
            for _ in range(each):
                await a.append("checkpoint", data)

        async def ours() -> None:
            for _ in range(each):
                await b.append("checkpoint", data)

        laps = await row.in_turns(floor, ours, rounds=bed.sizes.rounds)
    return row.rate(
        f"appends to a log of {count:,} events",
        laps,
        count=each,
        floor_name=f"to one of {bed.sizes.lengths[0]:,}",
        target=FLAT,
        note=row.spread(laps.ours),
    )
