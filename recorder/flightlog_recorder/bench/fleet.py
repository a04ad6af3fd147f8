"""A fleet: many sessions in flight, recorded, projected and watched by one subscriber."""

import asyncio
import functools
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import msgspec
from msgspec import Struct

from flightlog_recorder.bench import bed as beds
from flightlog_recorder.bench import replica
from flightlog_recorder.bench.bed import Bed
from flightlog_recorder.bench.crew import Achieved, Order
from flightlog_recorder.bench.replica import BenchFailed, Replica
from flightlog_recorder.bench.row import Row
from flightlog_recorder.bench.watcher import Expected, Seen

RATE = 2_000.0  # events per second, all sessions together
KEPT = 0.95  # of the rate that was asked for, at least
_CREWS = 2  # processes that share the sessions
_STEPS = (1.0, 2.0, 4.0)  # of the rate, until one is not kept

T = TypeVar("T", bound=Struct)


class Part:
    """A process of ours that takes orders by line and answers each with one."""

    def __init__(self, orders: asyncio.StreamWriter, answers: asyncio.StreamReader) -> None:
        self._orders, self._answers = orders, answers

    async def ask(self, order: Struct, answer: type[T]) -> T:
        """Give the order, and wait for what came of it."""
        self._orders.write(msgspec.json.encode(order) + b"\n")
        return msgspec.json.decode(await self.line(), type=answer)

    async def line(self) -> bytes:
        """Its next answer. Raises `BenchFailed` if it is gone."""
        if not (line := await self._answers.readline()):
            raise BenchFailed("a process of the fleet died; run it again with fewer sessions")
        return line


class Leg(Struct, frozen=True):
    """What came of one rate: what the crews did, what the watcher saw, what was projected when."""

    rate: float
    crews: list[Achieved]
    seen: Seen
    waiting: int
    lag: float

    @property
    def appended(self) -> int:
        return sum(crew.appended for crew in self.crews)

    @property
    def achieved(self) -> float:
        """Events per second."""
        return self.appended / max(crew.seconds for crew in self.crews)

    @property
    def kept(self) -> float:
        """What of the rate was kept."""
        return self.achieved / self.rate


async def rows(bed: Bed) -> AsyncIterator[Row]:
    """All of the fleet's rows; each number of replicas on servers of its own."""
    for row in await _run(bed, replicas=1):
        yield row
    async with beds.made(bed.sizes) as fresh:
        for row in await _run(fresh, replicas=2):
            yield row


async def _run(bed: Bed, *, replicas: int) -> list[Row]:
    sizes = bed.sizes
    async with _manned(bed) as (crews, watcher), replica.running(bed, replicas) as projectors:
        for each in projectors:
            await each.ready()
        legs = [await _leg(bed, crews, watcher, RATE, sizes.fleet_seconds)]
        found = _rows(legs[0], sizes.fleet, projectors)
        if replicas == 1:
            found.append(await _saturation(bed, crews, watcher, legs[0]))
    beside = f"{replicas} projector{'s' * (replicas > 1)}"
    return [msgspec.structs.replace(row, name=f"{row.name}, {beside}") for row in found]


async def _saturation(bed: Bed, crews: list[Part], watcher: Part, leg: Leg) -> Row:
    """The rates that follow, until one is not kept."""
    for step in _STEPS:
        if leg.kept < KEPT:
            break
        leg = await _leg(bed, crews, watcher, RATE * step * 2, bed.sizes.fleet_seconds / 2)
    return Row(
        name="fleet saturates",
        unit="events/s",
        measured=leg.achieved,
        note=f"{leg.rate:,.0f} were asked for; median {leg.seen.median:,.0f} ms to a notification",
    )


async def _leg(bed: Bed, crews: list[Part], watcher: Part, rate: float, seconds: float) -> Leg:
    order = Order(rate / len(crews), seconds)
    achieved = await asyncio.gather(*(crew.ask(order, Achieved) for crew in crews))
    waiting, began = await replica.waiting(bed), asyncio.get_running_loop().time()
    expected = Expected(sum(each.appended for each in achieved))
    seen, _ = await asyncio.gather(watcher.ask(expected, Seen), replica.covered(bed))
    return Leg(rate, achieved, seen, waiting, asyncio.get_running_loop().time() - began)


def _rows(leg: Leg, sessions: int, projectors: list[Replica]) -> list[Row]:
    name = f"fleet of {sessions:,}"
    crew = max(each.memory for each in leg.crews) / 1024
    memory = max(each.peak_memory() for each in projectors)
    return [
        Row(
            name=f"{name}, appended",
            unit="events/s",
            measured=leg.achieved,
            floor=leg.rate,
            floor_name="the rate that was asked for",
            ratio=leg.kept,
            target=KEPT,
        ),
        Row(
            name=f"{name}, notified",
            unit="events",
            measured=leg.seen.events,
            floor=leg.appended,
            floor_name="what was appended",
            ratio=leg.seen.events / leg.appended,
            target=1.0,
            note=f"{leg.seen.again} came twice",
        ),
        Row(name=f"{name}, to a notification, median", unit="ms", measured=leg.seen.median),
        Row(name=f"{name}, to a notification, p99", unit="ms", measured=leg.seen.p99),
        Row(
            name=f"{name}, not projected when the load ends",
            unit="events",
            measured=leg.waiting,
            note=f"all within {leg.lag:.1f} s",
        ),
        Row(
            name=f"{name}, peak memory",
            unit="MiB",
            measured=memory,
            note=f"the projector; a writer of half the sessions {crew:,.0f}, "
            f"the subscriber {leg.seen.memory / 1024:,.0f}",
        ),
    ]


@asynccontextmanager
async def _manned(bed: Bed) -> AsyncGenerator[tuple[list[Part], Part]]:
    """The crews, all their sessions open, and the watcher."""
    share = bed.sizes.fleet // _CREWS
    async with AsyncExitStack() as stack:
        watcher = await stack.enter_async_context(_process(bed, "watcher"))
        await watcher.line()
        crew = functools.partial(_process, bed, "crew", str(share))
        crews = [await stack.enter_async_context(crew()) for _ in range(_CREWS)]
        for each in crews:
            await each.line()
        yield crews, watcher


@asynccontextmanager
async def _process(bed: Bed, module: str, *arguments: str) -> AsyncGenerator[Part]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"{__package__}.{module}", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=bed.environment(),
    )
    try:
        if process.stdin is None or process.stdout is None:
            raise BenchFailed(f"{module} has no pipes")
        yield Part(process.stdin, process.stdout)
    finally:
        process.kill()
        await process.wait()
