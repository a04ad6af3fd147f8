"""`flightlog replay`: a session's events and states at any seq, and how it came to them."""

import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from flightlog import Event, InvalidValue
from flightlog_recorder.cli import checking, replayed, target
from flightlog_recorder.cli.checking import Wanted
from flightlog_recorder.cli.output import Exit, Usage, note, show_json
from flightlog_recorder.cli.target import Json, Target
from flightlog_recorder.replay import compare, effects, player, request, tape, terminal
from flightlog_recorder.replay.choice import Choice, Chooser, pattern
from flightlog_recorder.replay.exported import FileSource
from flightlog_recorder.replay.source import LiveSource
from flightlog_recorder.replay.tape import NotThere, Tape
from flightlog_recorder.replay.words import Words, near


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Which session is to be replayed, and up to where."""

    session: str | None
    key: str | None
    file: Path | None
    until: int | None
    since: int | None
    json: bool


def command(
    context: typer.Context,
    *,
    session: Annotated[str | None, typer.Argument(help="A session's id, or its key.")] = None,
    key: Annotated[str | None, typer.Option(help="A session's key.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="An exported file instead of a session; asks no server.")
    ] = None,
    until: Annotated[
        int | None, typer.Option(min=0, metavar="SEQ", help="The state after this event.")
    ] = None,
    since: Annotated[
        int | None, typer.Option("--from", min=1, metavar="SEQ", help="List events from here on.")
    ] = None,
    type: Annotated[list[str] | None, typer.Option(help="List events of this type.")] = None,
    tool: Annotated[list[str] | None, typer.Option(help="List calls and results of it.")] = None,
    grep: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="List events whose texts match.")
    ] = None,
    errors: Annotated[bool, typer.Option("--errors", help="List what went wrong.")] = False,
    diff: Annotated[
        str | None, typer.Option(metavar="A..B", help="What changed in the state from A to B.")
    ] = None,
    step: Annotated[bool, typer.Option("--step", help="Walk in the terminal; ? helps.")] = False,
    model: Annotated[
        int | None,
        typer.Option("--request", min=1, metavar="SEQ", help="The exact model request, proved."),
    ] = None,
    other: Annotated[
        str | None,
        typer.Option("--compare", metavar="OTHER", help="Where this session and another part."),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(metavar="MODULE:PROJECTION", help="Run it over the log; 'session' is ours."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="FILE|MODULE:PROJECTION", help="Which states --check must give."),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="With --check: write the states, for --against.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="With --check: all sessions.")] = False,
    json: Json = False,
) -> None:
    """Go back to any point of a session: its events, its state, what changed, what was sent.

    Nothing that was recorded is executed, nobody is notified, no log is written.

    --check is the gate for a deployment: it runs a projection over recorded logs, and exits with 1
    at the first event after which a state is not what it should be.
    """
    asked = Asked(session=session, key=key, file=file, until=until, since=since, json=json)
    choice = _choice(type, tool, grep, errors=errors)
    where = target.of(context)
    ways = {"--diff": diff, "--step": step or None, "--request": model, "--compare": other}
    way = _way({**ways, "--check": check}, asked, choice)
    if since is not None and until is not None and since > until:
        target.stop(Usage("--from is behind --until: there is nothing between them"))
    if way != "--check" and (against is not None or record is not None or every):
        target.stop(Usage("--against, --record and --all go with --check"))
    if check is not None:
        wanted = Wanted(
            session=session,
            key=key,
            file=file,
            every=every,
            until=until,
            projection=check,
            against=against,
            record=record,
            json=json,
        )
        target.run(checking.run(where, wanted))
    if step:
        target.run(_step(where, asked))
    if diff is not None:
        target.run(_diff(where, asked, _range(diff)))
    elif model is not None:
        target.run(_request(where, asked, model))
    elif other is not None:
        target.run(_compare(where, asked, other))
    elif since is not None or not choice.is_all:
        target.run(_list(where, asked, choice))
    else:
        target.run(_state(where, asked))


def _way(ways: dict[str, object], asked: Asked, choice: Choice) -> str | None:
    """The one thing that is asked for, if it is not the state or a list of events."""
    given = [name for name, value in ways.items() if value is not None]
    if not given:
        return None
    if len(given) > 1:
        target.stop(Usage(f"give one of {', '.join(given)}"))
    [way] = given
    if not choice.is_all:
        target.stop(Usage(f"--type, --tool, --grep and --errors list events: not with {way}"))
    if asked.since is not None and way != "--step":
        target.stop(Usage(f"--from lists events: not with {way}"))
    if asked.until is not None and way not in ("--step", "--check"):
        target.stop(Usage(f"--until is for a state or a list of events: not with {way}"))
    return way


def _choice(
    types: list[str] | None, tools: list[str] | None, words: str | None, *, errors: bool
) -> Choice:
    try:
        found = None if words is None else pattern(words)
    except InvalidValue as exc:
        target.stop(exc)
    return Choice(
        types=frozenset(types or ()), tools=frozenset(tools or ()), words=found, errors=errors
    )


def _range(text: str) -> tuple[int, int]:
    first, dots, last = text.partition("..")
    if not (dots and first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
        target.stop(Usage("--diff takes two seqs, such as 46..47"))
    if int(first) >= int(last):
        target.stop(Usage("--diff goes forward: the first seq must be the lower one"))
    return int(first), int(last)


@asynccontextmanager
async def _tape(where: Target, asked: Asked, *, at: int | None = None) -> AsyncGenerator[Tape]:
    """The tape that is to be looked at, and then what is damaged in it."""
    if asked.file is not None:
        if asked.session is not None or asked.key is not None:
            raise Usage("give a session, or --file")
        yield (found := await tape.opened(FileSource(asked.file), at=at))
    else:
        target.one_session(asked.session, asked.key)
        async with where.log() as log:
            session = await target.session_id(log, asked.session, key=asked.key)
            yield (found := await tape.opened(LiveSource(log, session), at=at))
    if found.damage is not None:
        note(found.damage)


async def _state(where: Target, asked: Asked) -> Exit:
    async with _tape(where, asked, at=asked.until) as found:
        seq = found.last if asked.until is None else asked.until
        looked = await found.state(seq)
        event = await found.event(seq) if seq else None
        if not asked.json:
            replayed.show_state(found, looked, event)
        left = await effects.effects(found.events, after=seq)
        if asked.json:
            show_json(replayed.state_document(found, looked, left))
        else:
            replayed.show_effects(left, after=seq)
        return _exit(found)


async def _list(where: Target, asked: Asked, choice: Choice) -> Exit:
    async with _tape(where, asked) as found:
        async for event in _chosen(found, asked, choice):
            if asked.json:
                sys.stdout.buffer.write(event.body + b"\n")
            else:
                replayed.show_event(event)
        sys.stdout.buffer.flush()
        return _exit(found)


async def _chosen(found: Tape, asked: Asked, choice: Choice) -> AsyncIterator[Event]:
    """The events that are wanted; with --tool the earlier calls are read too, for their names."""
    chooser, first = Chooser(choice), asked.since or 1
    words = Words(choice.words, found.whole) if choice.words else None
    after = 0 if choice.tools else first - 1
    async for event in found.events(after=after, until=asked.until):
        wanted = chooser.takes(event) and event.seq >= first
        if wanted and (words is None or await words.found(event)):
            yield event
    if words is not None and words.told is not None:
        note(words.told)


async def _diff(where: Target, asked: Asked, between: tuple[int, int]) -> Exit:
    async with _tape(where, asked, at=between[0]) as found:
        if between[1] > found.last:
            raise NotThere(found.session, between[1], found.last, found.damage)
        before = await found.state(between[0])
        after = await found.state(between[1])
        events = [each async for each in found.events(after=between[0], until=between[1])]
        if asked.json:
            replayed.show_diff_json(found, events, before.state, after.state)
        else:
            carried = await near(events[0], found.whole) if len(events) == 1 else None
            replayed.show_diff(found, events, before.state, after.state, carried=carried)
        return _exit(found)


async def _step(where: Target, asked: Asked) -> Exit:
    if asked.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Usage(
            "--step is for a person at a terminal; --from, --until and --json are for pipes"
        )
    async with _tape(where, asked) as found:
        with terminal.entered() as screen:
            await player.walk(found, screen, seq=asked.until or asked.since or 1)
        if screen.told is not None:
            raise SystemExit(128 + screen.told)
        return _exit(found)


async def _request(where: Target, asked: Asked, seq: int) -> Exit:
    async with _tape(where, asked, at=seq) as found:
        proved = await request.proved(found, seq)
        replayed.show_request(proved, json=asked.json)
        return _exit(found)


async def _compare(where: Target, asked: Asked, other: str) -> Exit:
    second = msgspec.structs.replace(asked, session=other, key=None)
    if asked.file is not None:
        second = msgspec.structs.replace(asked, file=Path(other))
    async with _tape(where, asked) as left, _tape(where, second) as right:
        parting = await compare.compare(left, right)
        show = replayed.show_parting_json if asked.json else replayed.show_parting
        show(left, right, parting)
        return max(_exit(left), _exit(right))


def _exit(found: Tape) -> Exit:
    return Exit.PROBLEM if found.damage is not None else Exit.FINE
