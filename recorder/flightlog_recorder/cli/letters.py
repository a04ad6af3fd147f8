"""`flightlog subscribe --dead`: dead letters listed, shown, sent again, forgotten."""

import json as jsons
from typing import Literal

import msgspec

from flightlog import Event, FlightlogError, Log, LogCorrupt, NoSuchSession, SessionPurged
from flightlog.subscribing import letter as dead
from flightlog.subscribing.letter import Letter
from flightlog_recorder.cli import target
from flightlog_recorder.cli.output import (
    Usage,
    moment,
    note,
    plural,
    printable,
    say,
    show_json,
    show_table,
)
from flightlog_recorder.cli.target import Target
from flightlog_recorder.inspect.telling import tell

COLUMNS = ("subscriber", "delivery", "type", "attempts", "since", "reason")

Act = Literal["look", "resend", "drop"]


class NoSuchLetter(FlightlogError):
    """No dead letter has this id."""

    def __init__(self) -> None:
        super().__init__("there is no such dead letter; flightlog subscribe --dead lists them")


def act_of(*, resend: bool, drop: bool) -> Act:
    """What is to be done with the letters; ends the command for what cannot be meant."""
    if resend and drop:
        target.stop(Usage("give --resend or --drop, not both"))
    return "resend" if resend else "drop" if drop else "look"


async def look_after(
    at: Target, name: str | None, delivery: str | None, act: Act, *, json: bool
) -> None:
    """Do it with one letter, or with all of a subscriber's."""
    if act != "look" and name is None and delivery is None:
        raise Usage(f"--{act} takes the id of a delivery, or --name for all of a subscriber's")
    async with at.log() as log:
        found = [
            each
            async for each in dead.letters(log.bus, log.tenant, name or "*")
            if delivery in (None, each.id)
        ]
        if delivery is not None and not found:
            raise NoSuchLetter
        if act != "look" and delivery is not None and len(found) > 1:
            names = ", ".join(sorted(each.name for each in found))
            raise Usage(f"several subscribers have this dead letter: give --name, of {names}")
        if act == "look" and delivery is not None:
            for each in found:
                _show(each, await _event(log, each), json=json)
        elif act == "look":
            _list(found, json=json)
        else:
            await _act(log, found, act, json=json)


async def _act(log: Log, found: list[Letter], act: Act, *, json: bool) -> None:
    for each in found:
        if act == "resend":
            await dead.send_again(log.bus, log.tenant, each)
        else:
            await dead.drop(log.bus, log.tenant, each.name, each)
    done = "sent again" if act == "resend" else "forgotten"
    if json:
        show_json({done.replace(" ", "_"): [each.id for each in found]})
    else:
        say(f"{plural(len(found), 'dead letter')} {done}")


async def _event(log: Log, letter: Letter) -> Event | None:
    """The letter's event, if its log still has it; a notice has none."""
    if not letter.seq:
        return None
    try:
        async for event in log.read(letter.session_id, after=letter.seq - 1, until=letter.seq):
            return event
    except (LogCorrupt, NoSuchSession, SessionPurged):
        pass  # the letter itself is what was asked for
    return None


def _list(found: list[Letter], *, json: bool) -> None:
    if json:
        show_json({"letters": [_fields(each) for each in found]})
    elif found:
        show_table(COLUMNS, [_row(each) for each in found], right="attempts", shrink="reason")
    else:
        note("there are no dead letters")


def _row(letter: Letter) -> list[str]:
    return [
        letter.name,
        letter.id,
        printable(letter.type),
        str(letter.attempts),
        moment(letter.ts),
        printable(letter.reason),
    ]


def _show(letter: Letter, event: Event | None, *, json: bool) -> None:
    if json:
        stored = jsons.loads(event.body) if event is not None else None
        show_json({**_fields(letter), "event": stored})
        return
    for title, value in zip(COLUMNS, _row(letter), strict=True):
        say((f"{title:<12}", "dim"), value)
    told = printable(tell(event)) if event is not None else "its log does not have it"
    say((f"{'event':<12}", "dim"), told)


def _fields(letter: Letter) -> dict[str, object]:
    return {"id": letter.id, **msgspec.structs.asdict(letter)}
