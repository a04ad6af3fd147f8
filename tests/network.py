"""A network between a client and NATS that a test may cut or stall."""

import asyncio
import contextlib
import re
from asyncio import StreamReader, StreamWriter, Transport
from typing import Self, cast


class Network:
    """Forwards bytes; stalls or cuts once when the client sends what `at` matches.

    Used as a block: `async with Network(url, at=b"STREAM.LIST", then="cut") as network`, and the
    client goes to `network.url`.
    """

    def __init__(self, url: str, *, at: bytes, then: str) -> None:
        self._before, _, address = url.rpartition("@")
        self._server, self._at, self._then = address.split(":"), re.compile(at), then
        self._open: list[StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.struck = asyncio.Event()
        self.url = ""

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._listening.sockets[0].getsockname()[1]
        self.url = f"{self._before}@127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        for task in self._tasks:
            task.cancel()
        self._cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._server)
        self._open += [writer, back]
        for flow in (self._forward(reader, back, up=True), self._forward(there, writer, up=False)):
            task = asyncio.create_task(flow)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(self, source: StreamReader, to: StreamWriter, *, up: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                if up and not self.struck.is_set() and self._at.search(data):
                    await self._strike()
                to.write(data)
                await to.drain()
        to.close()

    async def _strike(self) -> None:
        self.struck.set()
        if self._then == "stall":
            await asyncio.Event().wait()
        self._cut()

    def _cut(self) -> None:
        for each in self._open:
            cast("Transport", each.transport).abort()
        self._open.clear()
