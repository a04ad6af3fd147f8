"""A process that subscribes to what a crew appends, until it is killed.

Each line of its input is a number of events; once it has seen as many different ones since the last
line it answers with how late they came. It says `{}` first, once it is subscribed.
"""

import asyncio
import time
from statistics import median, quantiles

import msgspec
from msgspec import Struct

from flightlog import Delivery, connect
from flightlog_recorder.bench.crew import TYPE, lines, say
from flightlog_recorder.bench.reader import peak

PATIENCE = 120.0  # seconds for what is missing
_PARALLEL = 32  # deliveries whose acks may be on their way at once


class Expected(Struct, frozen=True):
    """How many events a watcher is to see."""

    events: int


class Seen(Struct, frozen=True):
    """Different events, deliveries beyond the first, milliseconds from append to delivery."""

    events: int
    again: int
    median: float
    p99: float
    memory: int


class _Note(Struct):
    at: float


class Watch:
    """What has come since the last look."""

    def __init__(self) -> None:
        self._late: list[float] = []
        self._known: set[str] = set()
        self._again = 0
        self._came = asyncio.Event()

    async def note(self, delivery: Delivery) -> None:
        """An event was delivered."""
        if delivery.id in self._known:
            self._again += 1
            return
        self._known.add(delivery.id)
        at = msgspec.json.decode(delivery.event.raw, type=_Note).at
        self._late.append(time.monotonic() - at)
        self._came.set()

    async def seen(self, expected: int) -> Seen:
        """Wait for as many, or for as long as patience goes; then begin anew."""
        try:
            async with asyncio.timeout(PATIENCE):
                while len(self._late) < expected:
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            pass
        late, again = self._late, self._again
        self._late, self._again = [], 0
        high = quantiles(late, n=100)[-1] if len(late) > 1 else 0.0
        return Seen(len(late), again, 1000 * median(late or [0.0]), 1000 * high, peak())


async def work() -> None:
    """Subscribe, and answer."""
    watch = Watch()
    async with (
        connect() as log,
        log.subscribe("bench", types=[TYPE]) as subscription,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(subscription.run(watch.note, parallel=_PARALLEL))
        say({})
        async for line in lines():
            say(await watch.seen(msgspec.json.decode(line, type=Expected).events))


if __name__ == "__main__":
    asyncio.run(work())
