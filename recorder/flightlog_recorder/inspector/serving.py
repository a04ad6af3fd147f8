"""The inspector's life: binds its port, serves until the block is left, lets streams end."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import uvicorn
from msgspec import Struct

from flightlog import FlightlogError, Log
from flightlog_recorder.inspector import pages
from flightlog_recorder.inspector.access import LEAST_TOKEN, Access, is_loopback
from flightlog_recorder.inspector.desk import Desk
from flightlog_recorder.inspector.stream import Live
from flightlog_recorder.service import web

DEFAULT_PORT = 8788
LINGER = 3  # seconds for what is being answered when we stop


class CannotServe(FlightlogError):
    """The inspector was asked to listen in a way that it does not."""


class Where(Struct, frozen=True, kw_only=True):
    """Where the inspector listens. Beyond loopback it needs the names it is served under."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    names: Sequence[str] = ()
    token: str | None = None

    def check(self) -> None:
        """Raise `CannotServe` for what is not to be done by accident."""
        if self.token is not None and len(self.token) < LEAST_TOKEN:
            raise CannotServe(f"the token has less than {LEAST_TOKEN} characters")
        if not is_loopback(self.host) and not self.names:
            raise CannotServe(
                f"{self.host} is more than this machine: name what the page is opened under with"
                " --allow-host NAME:PORT, and put TLS in front of it"
            )


class Site(Struct, frozen=True):
    """A running inspector. `url` holds the token: whoever has it may look and decide."""

    url: str
    port: int


@asynccontextmanager
async def serving(log: Log, where: Where) -> AsyncGenerator[Site]:
    """Serve for the length of a block. Raises `CannotServe`, OSError when the port is taken."""
    where.check()
    listener = web.listen(where.host, where.port)
    port = listener.getsockname()[1]
    access = Access(port=port, hosts=where.names, token=where.token)
    live = Live(log)
    server = _server(pages.application(Desk(log), live, access))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield Site(f"http://{_name(where, port)}/#token={access.token}", port)
    finally:
        live.stop()
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await running
        listener.close()


def _server(app: object) -> uvicorn.Server:
    server = web.server(app)  # type: ignore[arg-type]
    server.config.timeout_graceful_shutdown = LINGER
    return server


def _name(where: Where, port: int) -> str:
    if where.names:
        return where.names[0]
    host = f"[{where.host}]" if ":" in where.host else where.host
    return f"{host}:{port}"


def is_free(host: str, port: int) -> bool:
    """Whether the port could be bound now."""
    try:
        web.listen(host, port).close()
    except OSError:
        return False
    return True
