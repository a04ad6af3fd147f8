"""`flightlog up`: NATS, Redis and the services on this machine, until it is stopped."""

import asyncio
import importlib.util
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from flightlog.bus import nats_bus
from flightlog.bus.access import NatsAccess
from flightlog_recorder.cli import target
from flightlog_recorder.cli.output import Exit, note, say, seconds, show_json_line
from flightlog_recorder.cli.target import Json, Target
from flightlog_recorder.embedded import Servers, embedded
from flightlog_recorder.embedded.child import Child

SERVICES = {"projector": "flightlog_projector", "recorder": "flightlog_recorder.service"}
NEEDS = ("starlette", "uvicorn", "prometheus_client", "pydantic_settings")  # of both
LOOK_AGAIN = 0.5  # seconds between two looks whether everything still runs
RESTART_FIRST, RESTART_MOST = 1.0, 30.0  # seconds before a service that ended is started again
STOP_DEADLINE = 15.0  # seconds for a service to drain


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
    """Run NATS, Redis, projector, recorder and inspector on loopback, and print where they are.

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
        async with await nats_bus.connect_bare(servers.nats_url) as bus:
            await nats_bus.create_streams(bus, prefix=where.prefix)  # also what older data lacks
        async with _services(servers, where, data), _inspector(servers, where) as page:
            _announce(servers, where, page, json=json)
            return await _watch(servers, stop)


def _stopping() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def _announce(servers: Servers, where: Target, page: str | None, *, json: bool) -> None:
    if json:
        show_json_line({**servers.environment(), "data": str(servers.data), "inspector": page})
        return
    for name, url in servers.environment().items():
        say(f"export {name}={quote(url)}")
    if page is not None:
        note(f"look at the sessions of tenant {where.tenant}: {page}")
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
async def _services(servers: Servers, where: Target, data: Path) -> AsyncGenerator[None]:
    """The services beside the servers; recording goes on without them, so they may fail alone."""
    if not _can_serve():
        note("no services, so no catalog: pip install 'flightlog[projector,recorder]'")
        yield
        return
    environment = _environment(servers, where)
    keepers = [
        asyncio.create_task(_keep_running(name, environment, data / f"{name}.log"))
        for name in SERVICES
    ]
    try:
        yield
    finally:
        for keeper in keepers:
            keeper.cancel()
        await asyncio.wait(keepers)


@asynccontextmanager
async def _inspector(servers: Servers, where: Target) -> AsyncGenerator[str | None]:
    """The page to look at the sessions with; its address, or None where it cannot be served."""
    if not _can_serve():
        yield None
        return
    from flightlog_recorder.inspector import serving  # noqa: PLC0415  needs the recorder's extra

    at = replace(where, nats=NatsAccess(url=servers.nats_url), redis=servers.redis_url)
    port = serving.DEFAULT_PORT if serving.is_free("127.0.0.1", serving.DEFAULT_PORT) else 0
    async with at.log() as log, serving.serving(log, serving.Where(port=port)) as site:
        yield site.url


def _can_serve() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in NEEDS)


def _environment(servers: Servers, where: Target) -> dict[str, str]:
    return {
        **servers.environment(),
        "FLIGHTLOG_SUBJECT_PREFIX": where.prefix,
        "FLIGHTLOG_HTTP_PORT": "0",
    }


async def _keep_running(name: str, environment: dict[str, str], log: Path) -> None:
    pause = RESTART_FIRST
    child = _start(name, environment, log)
    try:
        while True:
            await asyncio.sleep(LOOK_AGAIN)
            if child.alive:
                continue
            note(f"the {name} has ended (see {log}); it starts again in {seconds(pause)}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, RESTART_MOST)
            child = _start(name, environment, log)
    finally:
        await asyncio.to_thread(child.stop, deadline=STOP_DEADLINE)


def _start(name: str, environment: dict[str, str], log: Path) -> Child:
    return Child([sys.executable, "-m", SERVICES[name]], log=log, environment=environment)
