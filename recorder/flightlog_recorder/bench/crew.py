"""A process that writes many sessions at once, at a steady rate, until it is killed.

Each line of its input is a rate and for how many seconds to keep it; it answers each with what it
achieved, and says `{}` first, once all its sessions are open.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import cycle, islice

import msgspec
from msgspec import Struct

from flightlog import Log, Session, connect
from flightlog_recorder.bench.reader import peak

TYPE = "note"
_OPENERS = 64  # sessions that are opened at once
_UNDER_WAY = 2_000  # appends that may wait for their ack before the next one is begun
_PAD = "x" * 900

_encode = msgspec.json.Encoder().encode


class Order(Struct, frozen=True):
    """What a crew is told: events per second, all its sessions together, for so many seconds."""

    rate: float
    seconds: float


class Achieved(Struct, frozen=True):
    """Events that were acknowledged, in how many seconds, and the peak memory in KiB."""

    appended: int
    seconds: float
    memory: int


async def work(sessions: int) -> None:
    """Open so many sessions, and append to them in turn as the orders say."""
    async with connect() as log, AsyncExitStack() as stack:
        crew = cycle(await _opened(log, stack, sessions))
        say({})
        async for line in lines():
            order = msgspec.json.decode(line, type=Order)
            say(await _append(crew, order))


async def _opened(log: Log, stack: AsyncExitStack, count: int) -> list[Session]:
    free = asyncio.Semaphore(_OPENERS)

    async def one() -> Session:
        async with free:
            return await stack.enter_async_context(log.session(signals=()))

    return await asyncio.gather(*(one() for _ in range(count)))


async def _append(crew: "cycle[Session]", order: Order) -> Achieved:
    """One append when it is due, or as soon as fewer than `_UNDER_WAY` wait for their ack."""
    began, due = time.monotonic(), 0
    free = asyncio.Semaphore(_UNDER_WAY)
    async with asyncio.TaskGroup() as tasks:
        while (elapsed := time.monotonic() - began) < order.seconds:
            ready = int(elapsed * order.rate) - due
            for s in islice(crew, ready):
                await free.acquire()
                tasks.create_task(_one(s, free))
            due += ready
            await asyncio.sleep(0.01)
    return Achieved(due, time.monotonic() - began, peak())


async def _one(s: Session, free: asyncio.Semaphore) -> None:
    try:
        await s.append(TYPE, {"at": time.monotonic(), "pad": _PAD})
    finally:
        free.release()


async def lines() -> AsyncIterator[bytes]:
    """The lines of the standard input."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        yield line


def say(what: object) -> None:
    """Answer with a line of JSON."""
    sys.stdout.buffer.write(_encode(what) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(work(int(sys.argv[1])))
