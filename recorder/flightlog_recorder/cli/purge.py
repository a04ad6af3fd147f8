"""`flightlog purge`: a session gone from the log for good."""

import getpass
from typing import Annotated

import typer

from flightlog_recorder import purge as purging
from flightlog_recorder.cli import target
from flightlog_recorder.cli.output import Exit, Usage, say, show_json
from flightlog_recorder.cli.target import Json, Target
from flightlog_recorder.purge.purge import PATIENCE, Purged, Reason


def purge(
    context: typer.Context,
    *,
    session: Annotated[str | None, typer.Argument(help="A session's id, or its key.")] = None,
    why: Annotated[str | None, typer.Option(help="The reason, for the tombstone.")] = None,
    by: Annotated[str | None, typer.Option(help="Who wants it.", show_default="you")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Do not wait for consumers; name those it robs.")
    ] = False,
    patience: Annotated[
        float, typer.Option(help="Seconds to wait for consumers to see the last event.")
    ] = PATIENCE,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Finish all purges that a crash left.")
    ] = False,
    json: Json = False,
) -> None:
    """Delete a session's events, its inbox and its key; a tombstone stays for 90 days.

    Waits until every durable consumer has seen the last event. A crash in the middle is finished by
    running it again, or by `--unfinished`.
    """
    if unfinished:
        target.run(_finish(target.of(context), json=json))
    if session is None or why is None:
        target.stop(Usage("name a session and say --why, or give --unfinished"))
    reason = Reason(by=by or _user(), why=why)
    target.run(
        _purge(target.of(context), session, reason, force=force, patience=patience, json=json)
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "a person"


async def _purge(
    where: Target, session: str, reason: Reason, *, force: bool, patience: float, json: bool
) -> Exit:
    async with where.log() as log:
        found = await target.session_id(log, session)
        done = await purging.purge(
            log, target.bus_of(log), found, reason=reason, force=force, patience=patience
        )
    _tell(done, json=json)
    return Exit.FINE


async def _finish(where: Target, *, json: bool) -> Exit:
    async with where.log() as log:
        bus = target.bus_of(log)
        async for found in purging.unfinished(log, bus):
            gone = await purging.finish(log, bus, found)
            _tell(Purged(found, gone, []), json=json)
    return Exit.FINE


def _tell(done: Purged, *, json: bool) -> None:
    if json:
        show_json({"session": done.session, "messages": done.messages, "robbed": done.robbed})
        return
    say(f"{done.session}: purged, {done.messages} messages are gone; a tombstone stays")
    if done.robbed:
        say(f"robbed of events they had not seen: {', '.join(done.robbed)}")
