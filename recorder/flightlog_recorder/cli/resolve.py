"""`flightlog resolve`: a person's ruling on a call whose outcome is unknown."""

import asyncio
import getpass
import json as parsing
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from msgspec import structs

from flightlog import FlightlogError, Log
from flightlog.calls import CallState
from flightlog.running import inbox
from flightlog.running.inbox import Decision
from flightlog.state import SessionState
from flightlog.wire import payload as payloads
from flightlog_recorder.cli import target
from flightlog_recorder.cli.output import Exit, Usage, note, printable, say, show_json
from flightlog_recorder.cli.target import Json, Target
from flightlog_recorder.inspect.overview import undecided

Ruling = Literal["result", "rerun", "fail"]

LOOK_AGAIN = 0.2  # seconds between two looks whether the writer has taken the ruling


class NotWaiting(FlightlogError):
    """The call does not wait for a person. Nothing was sent."""

    def __init__(self, session: str, waiting: Sequence[CallState]) -> None:
        named = "; ".join(_name(call) for call in waiting) or "none"
        super().__init__(
            f"no such call of session {session} waits for a decision; those that do: {named}"
        )


def resolve(
    context: typer.Context,
    *,
    session: Annotated[str, typer.Argument(help="A session's id, or its key.")],
    call_id: Annotated[str, typer.Argument(help="The call, as flightlog show names it.")],
    ruling: Annotated[
        Ruling,
        typer.Option(help="It took effect with this result; run it again; or tell the model."),
    ],
    reason: Annotated[str, typer.Option(help="Why, for the log.")],
    announced_by: Annotated[
        int | None, typer.Option(help="Seq of the model's answer, if two calls share an id.")
    ] = None,
    output: Annotated[
        str | None, typer.Option(help="The result as JSON, or @file; with --ruling result.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="Who decides.", show_default="you")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until the writer has taken it.")] = False,
    json: Json = False,
) -> None:
    """Say what became of a call that was in flight when its process died.

    The ruling goes to the session's inbox; its writer takes it, now or when it is opened next.
    """
    where = target.of(context)
    result = _output(ruling, output)
    decision = inbox.decision(
        call_id,
        announced_by=announced_by,
        ruling=ruling,
        output=result,
        by=by or _user(),
        reason=reason,
    )
    target.run(_resolve(where, session, decision, wait=wait, json=json))


def _output(ruling: Ruling, text: str | None) -> Any:
    if (ruling == "result") != (text is not None):
        target.stop(Usage("--output goes with --ruling result, and that needs it"))
    if text is None:
        return None
    try:
        raw = Path(text[1:]).read_text() if text.startswith("@") else text
        return parsing.loads(raw)
    except (ValueError, RecursionError):
        target.stop(Usage("--output is not JSON; a text needs quotes: '\"done\"'"))
    except OSError as exc:
        target.stop(Usage(f"--output: {exc.strerror}"))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "a person"


async def _resolve(
    where: Target, session: str, decision: Decision, *, wait: bool, json: bool
) -> Exit:
    async with where.log() as log:
        found = await target.session_id(log, session)
        state = await log.state(found)
        call = _waiting(found, state, decision)
        sequence = await log.send(found, structs.replace(decision, call=call.ref))
        taken = await _taken(log, found, state.seq, sequence) if wait else None
    return _tell(found, call, decision.ruling, taken, json=json)


def _waiting(session: str, state: SessionState, decision: Decision) -> CallState:
    """The one undecided call that is meant."""
    wanted = decision.call
    waiting = undecided(state)
    same = [call for call in waiting if call.call_id == wanted.call_id]
    if wanted.announced_by is not None:
        same = [call for call in same if call.announced_by == wanted.announced_by]
    if not same:
        raise NotWaiting(session, waiting)
    if len(same) > 1:
        places = ", ".join(str(call.announced_by) for call in same)
        raise Usage(f"several calls have this id: give --announced-by, one of {places}")
    return same[0]


async def _taken(log: Log, session: str, after: int, sequence: int) -> str:
    """Wait until the session's writer has taken the ruling; how it recorded it."""
    while (await log.state(session)).inbox < sequence:  # noqa: ASYNC110  another process writes it
        await asyncio.sleep(LOOK_AGAIN)
    async for event in log.read(session, after=after):
        match payloads.decode(event.type, event.raw):
            case payloads.DecisionMade(inbox=inbox, ruling=ruling) if inbox == sequence:
                return ruling
            case _:
                pass
    return "refused"


def _tell(session: str, call: CallState, ruling: Ruling, taken: str | None, *, json: bool) -> Exit:
    refused = taken == "refused"
    if json:
        about = {"call_id": call.call_id, "announced_by": call.announced_by}
        show_json({"session": session, **about, "ruling": ruling, "recorded": taken})
    elif refused:
        note("the ruling was refused: the call was decided already, or cannot be run; the log says")
    elif taken is not None:
        say(f"{_name(call)}: {ruling}, taken by the session's writer")
    else:
        say(f"{_name(call)}: {ruling}, sent; the session's writer takes it when it runs next")
    return Exit.PROBLEM if refused else Exit.FINE


def _name(call: CallState) -> str:
    about = "" if call.announced_by is None else f" --announced-by {call.announced_by}"
    return f"{printable(call.call_id)}{about} ({printable(call.name)})"
