"""`flightlog up`: NATS, Redis and the projector on this machine, until it is stopped."""

import asyncio
import importlib.util
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from flightlog import nats_bus
from flightlog_recorder.cli import target
from flightlog_recorder.cli.output import Exit, note, say, seconds, show_json_line
from flightlog_recorder.cli.target import Json, Target
from flightlog_recorder.embedded import Servers, embedded
from flightlog_recorder.embedded.child import Child

PROJECTOR = "flightlog_projector"
LOOK_AGAIN = 0.5  # seconds between two looks whether everything still runs
RESTART_FIRST, RESTART_MOST = 1.0, 30.0  # seconds before a projector that ended is started again
STOP_DEADLINE = 15.0  # seconds for the projector to drain


def up(
    context: typer.Context,
    *,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Where the servers keep their data.", show_default="~/.local/share/flightlog"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Run NATS, Redis and the projector on loopback, and print the variables that name them.

    The data survives. Ctrl-C or SIGTERM stops everything; nothing outlives this process.
    """
    where = target.of(context)
    target.run(_up(where, data or default_data(dict(os.environ)), json=json))


def default_data(environ: dict[str, str]) -> Path:
    """Where data is kept unless the operator says otherwise (XDG base directories)."""
    share = environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(share).expanduser() / "flightlog"


async def _up(where: Target, data: Path, *, json: bool) -> Exit:
    stop = _stopping()
    with embedded(data) as servers:
        bus = await nats_bus.connect_bus(servers.nats_url, prefix=where.prefix, provision=True)
        await bus.close()
        async with _projector(servers, where, data):
            _announce(servers, json=json)
            return await _watch(servers, stop)


def _stopping() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def _announce(servers: Servers, *, json: bool) -> None:
    if json:
        show_json_line({**servers.environment(), "data": str(servers.data)})
        return
    for name, url in servers.environment().items():
        say(f"export {name}={quote(url)}")
    note(f"running on {servers.data}; Ctrl-C stops it")


async def _watch(servers: Servers, stop: asyncio.Event) -> Exit:
    """Wait to be stopped; a server that ends on its own ends us."""
    while not stop.is_set():
        for server in (servers.nats, servers.redis):
            if server is not None and not server.running:
                note(f"a server has ended; its last words are in {server.log}")
                return Exit.PROBLEM
        await _pause(stop, LOOK_AGAIN)
    note("stopping")
    return Exit.FINE


async def _pause(stop: asyncio.Event, delay: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), delay)
    except TimeoutError:
        return


@asynccontextmanager
async def _projector(servers: Servers, where: Target, data: Path) -> AsyncGenerator[None]:
    """The projector beside the servers; recording goes on without it, so it may fail alone."""
    if importlib.util.find_spec(f"{PROJECTOR}.__main__") is None:
        note("no projector here, so no catalog: pip install 'flightlog[projector]'")
        yield
        return
    keeper = asyncio.create_task(_keep_running(servers, where, data / "projector.log"))
    try:
        yield
    finally:
        keeper.cancel()
        await asyncio.wait([keeper])


async def _keep_running(servers: Servers, where: Target, log: Path) -> None:
    pause = RESTART_FIRST
    child = _start(servers, where, log)
    try:
        while True:
            await asyncio.sleep(LOOK_AGAIN)
            if child.alive:
                continue
            note(f"the projector has ended (see {log}); it starts again in {seconds(pause)}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, RESTART_MOST)
            child = _start(servers, where, log)
    finally:
        child.stop(deadline=STOP_DEADLINE)


def _start(servers: Servers, where: Target, log: Path) -> Child:
    settings = {
        **servers.environment(),
        "FLIGHTLOG_SUBJECT_PREFIX": where.prefix,
        "FLIGHTLOG_HTTP_PORT": os.environ.get("FLIGHTLOG_HTTP_PORT", "0"),
    }
    os.environ.update(settings)  # what a child inherits, and no other user of this machine sees
    return Child([sys.executable, "-m", PROJECTOR], log=log)
