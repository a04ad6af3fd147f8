"""`flightlog provision`: make the streams of a broker."""

from typing import Annotated

import typer

from flightlog.bus import nats_bus
from flightlog_recorder.cli import target
from flightlog_recorder.cli.output import Exit, note, plural, say, show_json
from flightlog_recorder.cli.target import Json, Target
from flightlog_recorder.provision import Made, Wish
from flightlog_recorder.provision import provision as carry_out


def provision(
    context: typer.Context,
    *,
    streams: Annotated[
        int | None,
        typer.Option(
            min=1, max=64, help="Log streams: 1 embedded, 8 in production.", show_default="1"
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, max=5, help="Copies of each stream: 3 on a cluster.", show_default="1"),
    ] = None,
    json: Json = False,
) -> None:
    """Make the streams that are missing. What is there is never changed; running it twice is fine.

    The number of log streams is chosen once: it stays while they hold sessions.
    """
    where = target.of(context)
    wish = Wish(streams=streams, replicas=replicas, prefix=where.prefix)
    target.run(_provision(where, wish, json=json))


async def _provision(where: Target, wish: Wish, *, json: bool) -> Exit:
    bus = await nats_bus.connect_bare(where.nats)
    try:
        made = await carry_out(bus, wish)
    finally:
        await bus.close()
    if json:
        show_json(made)
    else:
        _tell(made)
    return Exit.PROBLEM if made.refused else Exit.FINE


def _tell(made: Made) -> None:
    for name in made.created:
        say(("created    ", "green"), name)
    for name in made.there:
        say(("was there  ", "dim"), name)
    for refusal in made.refused:
        say(("differs    ", "red"), refusal.stream)
        for field in refusal.fields:
            say(f"           {field}")
    if made.refused:
        note("nothing was changed: mend these streams, or use another account of NATS")
    else:
        logs, copies = plural(made.streams, "log stream"), plural(made.replicas, "replica")
        say(f"ready: {logs}, {copies}")
