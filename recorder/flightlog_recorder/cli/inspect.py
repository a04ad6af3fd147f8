"""`flightlog inspect`: the sessions of a tenant in a browser."""

import asyncio
import os
import signal
from typing import Annotated

import typer

from flightlog_recorder.cli import target
from flightlog_recorder.cli.output import Usage, note, say, show_json_line
from flightlog_recorder.cli.target import Json, Target
from flightlog_recorder.inspector.serving import DEFAULT_PORT, CannotServe, Where, serving

TOKEN = "FLIGHTLOG_INSPECT_TOKEN"  # noqa: S105  the name of a variable


def command(
    context: typer.Context,
    *,
    host: Annotated[str, typer.Option(help="Listen here.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes a free one.")] = (
        DEFAULT_PORT
    ),
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:PORT]",
            help="A name that the page may be opened under; needed beyond loopback.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Serve the inspector: sessions as timelines, states, differences, forks, decisions.

    It prints its address, which holds a token that is made anew at each start
    (FLIGHTLOG_INSPECT_TOKEN names one to keep). It listens on this machine alone unless told.
    """
    token = os.environ.get(TOKEN) or None
    where = Where(host=host, port=port, names=tuple(allow_host or ()), token=token)
    try:
        where.check()
    except CannotServe as exc:
        target.stop(Usage(str(exc)))
    target.run(_inspect(target.of(context), where, json=json))


async def _inspect(at: Target, where: Where, *, json: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if at.redis is None:
        note("no catalog, so no list of sessions: give --redis or FLIGHTLOG_REDIS_URL")
    async with at.log() as log, serving(log, where) as site:
        if json:
            show_json_line({"url": site.url, "port": site.port, "tenant": log.tenant})
        else:
            say(site.url)
            note(f"the sessions of tenant {log.tenant}; Ctrl-C stops it")
        await stop.wait()
