"""The signals that this process gets while it runs a program: they go on to it."""

import asyncio
import contextlib
from collections.abc import Coroutine, Generator
from signal import Signals
from typing import Any, TypeVar

from flightlog_recorder.run.program import Program

T = TypeVar("T")

STOPS = (Signals.SIGTERM, Signals.SIGINT, Signals.SIGHUP)
FORWARDED = (*STOPS, Signals.SIGUSR1, Signals.SIGUSR2)


class Stops:
    """Forwards signals to the program there is; `told` is the first one that ends the job."""

    def __init__(self) -> None:
        self.told: Signals | None = None
        self.program: Program | None = None
        self._asked = asyncio.Event()

    @contextlib.contextmanager
    def heeded(self) -> Generator[None]:
        """Take this process' signals for the length of a block."""
        loop = asyncio.get_running_loop()
        for number in FORWARDED:
            loop.add_signal_handler(number, self._take, number)
        try:
            yield
        finally:
            for number in FORWARDED:
                loop.remove_signal_handler(number)

    async def wait(self, timeout: float) -> bool:
        """Wait until the job is to end; False after `timeout` seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.asked(), timeout)
        return self.told is not None

    async def unless_told(self, work: Coroutine[Any, Any, T], *, left: float = 0.0) -> T | None:
        """What `work` gives; it is cancelled `left` seconds after the job is to end."""
        working, asked = asyncio.create_task(work), asyncio.create_task(self.asked())
        try:
            await asyncio.wait({working, asked}, return_when=asyncio.FIRST_COMPLETED)
            if left and not working.done():
                await asyncio.wait({working}, timeout=left)
            return working.result() if working.done() else None
        finally:
            for task in (working, asked):
                task.cancel()
            await asyncio.wait({working, asked})

    async def asked(self) -> None:
        """Wait until the job is to end."""
        await self._asked.wait()

    def _take(self, number: Signals) -> None:
        if number in STOPS:
            self.told = self.told or number
            self._asked.set()
        if self.program is not None:
            self.program.send(number)
