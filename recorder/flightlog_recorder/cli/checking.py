"""`flightlog replay --check`: a projection run over recorded logs, the gate for a deployment."""

import contextlib
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import IO, Any

import msgspec

from flightlog import InvalidValue, Log
from flightlog_recorder.cli import replayed, target
from flightlog_recorder.cli.output import (
    Exit,
    Usage,
    note,
    number,
    plural,
    printable,
    say,
    show_json_line,
)
from flightlog_recorder.cli.target import Target
from flightlog_recorder.replay import strip, tape
from flightlog_recorder.replay.check import Checked, Divergence, check
from flightlog_recorder.replay.exported import FileSource
from flightlog_recorder.replay.projection import BUILT_IN, AnyProjection, BadProjection, load
from flightlog_recorder.replay.recording import Recorder, Recording
from flightlog_recorder.replay.source import LiveSource
from flightlog_recorder.replay.tape import Tape
from flightlog_recorder.verify import sessions


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be checked, and against what."""

    session: str | None
    key: str | None
    file: Path | None
    every: bool
    until: int | None
    projection: str
    against: str | None
    record: Path | None
    json: bool


async def run(where: Target, wanted: Wanted) -> Exit:
    """Check each session up to its first divergence; `PROBLEM` if there is one."""
    _refuse(wanted)
    projection, against = _named(wanted.projection), _against(wanted.against)
    found: list[Checked] = []
    unread = 0
    with _recorder(wanted.record) as recorder:
        async for each in _tapes(where, wanted):
            events = each.events(until=wanted.until)
            checked = await check(
                each.session, events, projection, against=against, recorder=recorder
            )
            why = _unread(each, checked, wanted.until)
            unread += why is not None
            found.append(checked)
            _tell(checked, why, against, json=wanted.json)
    if len(found) != 1 and not wanted.json:
        _conclude(found, unread)
    diverged = any(each.divergence is not None for each in found)
    idle = against is not None and not diverged and not any(each.compared for each in found)
    if idle:
        note("nothing was compared: what --against names knows none of these events")
    return Exit.PROBLEM if diverged or unread or idle else Exit.FINE


def _unread(tape: Tape, checked: Checked, until: int | None) -> str | None:
    """Why not all was checked that should have been; nothing is ok of which a part was not read."""
    if tape.damage is not None or checked.divergence is not None:
        return tape.damage
    last = tape.last if until is None else min(until, tape.last)
    if checked.events >= last:
        return None
    return f"{number(checked.events)} of {plural(last, 'event')} could be read"


def _against(text: str | None) -> AnyProjection | Recording | None:
    if text is None:
        return None
    if ":" in text or text == BUILT_IN:
        return _named(text)
    if not Path(text).exists():
        raise Usage(f"--against: there is no file {text}, and MODULE:PROJECTION has a colon")
    return Recording(Path(text))


def _named(text: str) -> AnyProjection:
    try:
        return load(text)
    except BadProjection as exc:
        raise Usage(str(exc)) from exc
    except InvalidValue:
        raise Usage(f"name a projection as MODULE:PROJECTION, or {BUILT_IN}") from None


@contextlib.contextmanager
def _recorder(path: Path | None) -> Generator[Recorder | None]:
    if path is None:
        yield None
        return
    file: IO[bytes]
    with path.open("xb") as file:
        yield Recorder(file)
    note(f"recorded the states in {path.name}")


async def _tapes(where: Target, wanted: Wanted) -> AsyncIterator[Tape]:
    if wanted.file is not None:
        yield await tape.opened(FileSource(wanted.file))
        return
    async with where.log() as log:
        async for session in _sessions(log, wanted):
            try:
                found = await tape.opened(LiveSource(log, session), at=0)
            except LookupError as exc:  # a fork or import that is not done, or is purged meanwhile
                note(str(exc))
            else:
                yield found


async def _sessions(log: Log, wanted: Wanted) -> AsyncIterator[str]:
    if not wanted.every:
        yield await target.session_id(log, wanted.session, key=wanted.key)
        return
    async for page in sessions(target.bus_of(log), log.tenant):
        for session in page:
            yield session


def _tell(
    checked: Checked,
    unread: str | None,
    against: AnyProjection | Recording | None,
    *,
    json: bool,
) -> None:
    if json:
        show_json_line(_document(checked, unread))
        return
    if unread is not None:
        note(unread)
    divergence = checked.divergence
    if divergence is not None:
        _tell_divergence(checked.session, divergence)
        return
    same = f", {number(checked.compared)} compared" if against is not None else ""
    outcome = ("ok  ", "green") if unread is None else ("damaged  ", "bold red")
    say(outcome, checked.session, f"  {plural(checked.events, 'event')}{same}")


def _tell_divergence(session: str, divergence: Divergence) -> None:
    where = f"at seq {number(divergence.seq)} ({printable(divergence.type)})"
    say(("diverges  ", "bold red"), session, f"  {where}: {divergence.why}")
    replayed.show_lines(strip.payload_changes(divergence.changes, most=40), indent="    ")


def _conclude(found: list[Checked], unread: int) -> None:
    diverged = sum(1 for each in found if each.divergence is not None)
    events = sum(each.events for each in found)
    told = f"{plural(len(found), 'session')}, {plural(events, 'event')}"
    wrong = [plural(diverged, "diverges", "diverge")] if diverged else []
    wrong += [f"{number(unread)} damaged"] if unread else []
    say(f"{told}: {', '.join(wrong) or 'all the same'}")


def _document(checked: Checked, unread: str | None) -> dict[str, Any]:
    divergence = checked.divergence
    return {
        "session": checked.session,
        "events": checked.events,
        "compared": checked.compared,
        "damage": unread,
        "divergence": None
        if divergence is None
        else {
            "seq": divergence.seq,
            "type": divergence.type,
            "why": divergence.why,
            "changes": [replayed.change_document(change) for change in divergence.changes],
        },
    }


def _refuse(wanted: Wanted) -> None:
    named = [wanted.session, wanted.key, wanted.file, wanted.every or None]
    if sum(each is not None for each in named) != 1:
        raise Usage("name one session, its --key, a --file, or --all")
    if wanted.until == 0:
        raise Usage("--check runs over events: --until names the last one, 1 or later")
    if wanted.record is not None and wanted.record.exists():
        raise Usage("--record names a file that is there already; a recording is never overwritten")
