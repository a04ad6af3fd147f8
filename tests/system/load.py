"""Appends without end, several at a time, and what they were told."""

import asyncio

from flightlog import Event, Log, Session
from flightlog_recorder.embedded import Server
from tests.scripted import chain_is_whole, stored, until


class Load:
    """One session's appends, several at a time, until told to stop."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.acked: dict[int, str] = {}
        self.sent = 0
        self.stopped = False

    async def run(self, *, width: int) -> None:
        """Append in `width` chains, each of which waits for its last ack before it goes on."""
        await asyncio.gather(*(self._chain() for _ in range(width)))

    async def _chain(self) -> None:
        while not self.stopped:
            self.sent += 1
            event: Event = await self.session.append("note", {"n": self.sent})
            assert event.seq not in self.acked
            self.acked[event.seq] = event.digest

    async def check(self, log: Log) -> None:
        """What was acked is stored, once, in a dense chain without strays, and nothing else."""
        events = await stored(log, self.session.id)
        assert chain_is_whole(events)
        notes = {event.seq: event.digest for event in events if event.type == "note"}
        assert notes == self.acked
        assert (await log.fold(self.session.id)).strays == ()


async def acks_of_each(loads: list[Load], more: int, *, timeout: float = 30.0) -> None:
    """Wait until each load has that many more acks: none of them is stuck."""
    wanted = [len(load.acked) + more for load in loads]
    await until(
        lambda: all(len(load.acked) >= n for load, n in zip(loads, wanted, strict=True)),
        timeout=timeout,
    )


async def restart(server: Server) -> None:
    """Kill a server with SIGKILL and start it again on the same data."""
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
