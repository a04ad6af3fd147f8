"""`flightlog provision`: make the streams of a broker."""

from typing import Annotated

import typer

from flightlog.bus import nats_bus
from flightlog.wire import subject as names
from flightlog_recorder.access import accounts, conf
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
    print_accounts: Annotated[
        bool,
        typer.Option(
            "--print-accounts",
            help="Make nothing: print an account for the tenant and its users' permissions, "
            "for nats-server's settings. Passwords stay variables.",
        ),
    ] = False,
    subscriber: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="With --print-accounts: a subscriber; may be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Make the streams that are missing. What is there is never changed; running it twice is fine.

    The number of log streams is chosen once: it stays while they hold sessions.
    """
    where = target.of(context)
    if print_accounts:
        _print_accounts(where, streams or 1, subscriber or [], json=json)
        return
    wish = Wish(streams=streams, replicas=replicas, prefix=where.prefix)
    target.run(_provision(where, wish, json=json))


def _print_accounts(where: Target, streams: int, subscribers: list[str], *, json: bool) -> None:
    """One account a tenant, as tenants that distrust each other need it, and that of the doctor."""
    named = [names.token("subscriber", each) for each in subscribers]
    account = accounts.of_tenants(
        where.tenant, [where.tenant], subscribers=named, streams=streams, prefix=where.prefix
    )
    found = [account, accounts.system()]
    if json:
        show_json(
            {user.name: accounts.grants(a.permissions(user)) for a in found for user in a.users}
        )
        return
    blocks = {each.name: accounts.settings(each, {}) for each in found}
    say(conf.render({"accounts": blocks, "system_account": accounts.SYSTEM}).rstrip())


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
