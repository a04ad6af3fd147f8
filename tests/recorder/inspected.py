"""The inspector as a browser's script would ask it: real sockets, and every header by hand."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from flightlog import Log
from flightlog_recorder.inspector.serving import Where, serving


@dataclass(frozen=True)
class Answered:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """What the page would say."""
        return str(self.json["error"])


class Client:
    """Asks with the token, unless told otherwise."""

    def __init__(self, port: int, token: str) -> None:
        self.port, self.token = port, token

    async def get(self, path: str, **headers: str | None) -> Answered:
        """Read a page; a header of None is left out."""
        return await self.ask("GET", path, b"", **headers)

    async def post(self, path: str, value: object, **headers: str | None) -> Answered:
        """Send JSON as the page does."""
        sent = {"content-type": "application/json", "flightlog-write": "1"}
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return await self.ask("POST", path, body, **sent | underlined(headers))

    async def ask(self, method: str, path: str, body: bytes, **headers: str | None) -> Answered:
        """One request on a connection of its own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(self._head(method, path, headers, len(body)) + body)
            return _answered(await reader.read())
        finally:
            writer.close()
            await writer.wait_closed()

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncGenerator[AsyncIterator[Any]]:
        """The data of server-sent events, as they come."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(self._head("GET", path, {}, 0))
            assert b" 200 " in await reader.readline()
            yield _data(reader)
        finally:
            writer.close()
            await writer.wait_closed()

    def _head(self, method: str, path: str, given: dict[str, str | None], size: int) -> bytes:
        headers = {
            "host": f"127.0.0.1:{self.port}",
            "authorization": f"Bearer {self.token}",
            "content-length": str(size),
        } | underlined(given)
        lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
        return "\r\n".join([f"{method} {path} HTTP/1.0", *lines, "", ""]).encode()


def underlined(headers: dict[str, str | None]) -> dict[str, str | None]:
    """Header names, which Python's arguments cannot spell."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


@asynccontextmanager
async def inspected(log: Log) -> AsyncGenerator[Client]:
    """The inspector on a free port, for the length of a block."""
    async with serving(log, Where(port=0)) as site:
        yield Client(site.port, site.url.partition("#token=")[2])


async def _data(reader: asyncio.StreamReader) -> AsyncIterator[Any]:
    while line := await reader.readline():
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def _answered(answer: bytes) -> Answered:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(": ") for line in lines)
    return Answered(int(first.split()[1]), {n.lower(): v for n, _, v in pairs}, body)
