"""`flightlog provision`: make the streams of a broker."""

from pathlib import Path
from typing import Annotated

import typer

from flightlog import FlightlogError
from flightlog.bus import nats_bus
from flightlog_recorder.access.handout import Means
from flightlog_recorder.cli import accounts, target
from flightlog_recorder.cli.accounts import Asked
from flightlog_recorder.cli.output import Exit, Usage, note, plural, say, show_json
from flightlog_recorder.cli.target import Json, Target
from flightlog_recorder.provision import Made, Wish
from flightlog_recorder.provision import provision as carry_out

_ACCOUNTS = "Accounts: nothing is made on a server"


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
    max_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="What each log stream that is made may hold, and that of the blobs: 20GiB. "
            "A full one refuses, it never drops. What an account may store follows from it.",
            show_default="no limit",
        ),
    ] = None,
    tenant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_ACCOUNTS,
            help="An account for this tenant; several share one if they trust each other.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=_ACCOUNTS,
            help="Write it there, with a secret for each user and the users of Redis. "
            "Again keeps the secrets. Without it the account is printed, passwords as variables.",
        ),
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_ACCOUNTS,
            help="Its name.",
            show_default="the tenant's",
        ),
    ] = None,
    subscriber: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", rich_help_panel=_ACCOUNTS, help="A subscriber; may be repeated."
        ),
    ] = None,
    proof: Annotated[
        Means,
        typer.Option(
            rich_help_panel=_ACCOUNTS, help="What users prove themselves to NATS by, with --output."
        ),
    ] = "password",
    print_accounts: Annotated[
        bool,
        typer.Option(
            "--print-accounts",
            rich_help_panel=_ACCOUNTS,
            help="Print the account of the tenant that is named before the command.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Make the streams that are missing. What is there is never changed; running it twice is fine.

    The number of log streams is chosen once: it stays while they hold sessions.
    """
    where = target.of(context)
    asked = Asked(tenant or [where.tenant], account, subscriber or (), proof)
    try:
        most = accounts.size(max_bytes) if max_bytes else None
        wish = Wish(streams=streams, replicas=replicas, max_bytes=most, prefix=where.prefix)
        if (output or account or subscriber) and not (tenant or print_accounts):
            raise Usage("--output, --account and --subscriber need --tenant NAME")
    except FlightlogError as exc:
        target.stop(exc)
    if tenant or print_accounts:
        target.run(_accounts(where, asked, wish, output, json=json))
    target.run(_provision(where, wish, json=json))


async def _accounts(
    where: Target, asked: Asked, wish: Wish, output: Path | None, *, json: bool
) -> None:
    made = accounts.account_of(asked, wish)
    if output is None:
        accounts.show(made, json=json)
    else:
        accounts.write(where, made, output, asked, wish, json=json)


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
