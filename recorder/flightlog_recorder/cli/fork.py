"""`flightlog fork`: a new session that starts as a copy of another one's first events."""

import functools
import sys
from collections import Counter
from typing import Annotated

import typer

from flightlog_recorder.cli import target
from flightlog_recorder.cli.output import Exit, note, plural, printable, say, show_json
from flightlog_recorder.cli.target import Json, Labels, Target
from flightlog_recorder.replay.effects import Effects, effects

TOLD = 5  # tools by name; the rest is counted


def fork(
    context: typer.Context,
    *,
    session: Annotated[str | None, typer.Argument(help="A session's id, or its key.")] = None,
    key: Annotated[str | None, typer.Option(help="The fork's key.")] = None,
    at: Annotated[
        int | None, typer.Option(help="The last event to keep.", show_default="all events")
    ] = None,
    label: Labels = None,
    json: Json = False,
) -> None:
    """Copy a session's first events to a new one, and print its id; open it like any other.

    With the same --key a second run returns the fork that the first one made.
    """
    given = target.labels(label)
    target.run(_fork(target.of(context), session, key, at, given, json=json))


async def _fork(
    where: Target,
    session: str | None,
    key: str | None,
    at: int | None,
    given: dict[str, str],
    *,
    json: bool,
) -> Exit:
    target.one_session(session, None)
    async with where.log() as log:
        source = await target.session_id(log, session)
        made = await log.fork(source, at=at, key=key, labels=given)
        found = Effects()
        if at is not None:
            found = await effects(functools.partial(log.read, source), after=at, among=sys.maxsize)
    outside = Counter(found.tools)
    if json:
        show_json({"session": made, "source": source, "at": at, "not_undone": dict(outside)})
        return Exit.FINE
    say(made)
    if outside:
        note(f"not undone: {_told(outside)} of {source} after event {at}")
    return Exit.FINE


def _told(outside: Counter[str]) -> str:
    named = ", ".join(f"{printable(name)} x{n}" for name, n in outside.most_common(TOLD))
    rest = len(outside) - TOLD
    more = f" and {plural(rest, 'other tool')}" if rest > 0 else ""
    return f"{plural(outside.total(), 'call')} ({named}{more})"
