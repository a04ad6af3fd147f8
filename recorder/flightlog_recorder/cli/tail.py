"""`flightlog tail`: a session's last events, and those that come."""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from flightlog import Event, Log
from flightlog.bus.protocol import Message
from flightlog.errors import BusUnavailable, NoSuchSession, SessionPurged
from flightlog_recorder.cli import target
from flightlog_recorder.cli.output import note, printable, say_briefly
from flightlog_recorder.cli.target import Target
from flightlog_recorder.inspect.follow import Following, Rewound
from flightlog_recorder.inspect.telling import said, tell

LOOK_FIRST, LOOK_MOST = 0.02, 1.0  # seconds between looks: a replica lags, a hint may be lost

STYLES = {
    "user_message": "bold cyan",
    "model_response": "green",
    "tool_call": "yellow",
    "tool_result": "yellow",
    "decision_requested": "bold red",
    "decision_made": "bold magenta",
}


def tail(
    context: typer.Context,
    *,
    session: Annotated[str | None, typer.Argument(help="A session's id, or its key.")] = None,
    key: Annotated[str | None, typer.Option(help="A session's key.")] = None,
    last: Annotated[int, typer.Option("-n", min=0, help="How many of the last events.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the stored bodies, one a line.")
    ] = False,
) -> None:
    """Print a session's last events; with --follow every later one, once and in order.

    Following also shows progress, which nobody keeps.
    """
    target.run(_tail(target.of(context), session, key, last, follow=follow, json=json))


async def _tail(
    where: Target, session: str | None, key: str | None, last: int, *, follow: bool, json: bool
) -> None:
    target.one_session(session, key)
    async with where.log() as log:
        found = await target.session_id(log, session, key=key)
        following = Following(log.bus, log.tenant, found)
        async with log.watch(found) as hints, log.progress(found) as chunks:
            for event in await _history(following, last):
                _show(event, json=json)
            _check(following)
            if follow:
                async with _shown(chunks, json=json):
                    await _Live(log, following, json=json).run(hints)


@asynccontextmanager
async def _shown(chunks: "asyncio.Queue[Any]", *, json: bool) -> AsyncGenerator[None]:
    """Show progress for the length of a block; JSON is of what is stored alone."""
    showing = None if json else asyncio.create_task(_show_progress(chunks))
    try:
        yield
    finally:
        if showing is not None:
            showing.cancel()


async def _show_progress(chunks: "asyncio.Queue[Any]") -> None:
    while True:
        chunk = said(await chunks.get())
        say_briefly((f"{'':>6}  {'':<8}  {'progress':<18}  ", "dim"), (printable(chunk), "dim"))


async def _history(following: Following, last: int) -> deque[Event]:
    kept: deque[Event] = deque(maxlen=last)
    async for found in following.more():
        if isinstance(found, Rewound):
            kept = deque((event for event in kept if event.seq <= found.to), maxlen=last)
        else:
            kept.extend(found)
    return kept


def _check(following: Following) -> None:
    if following.presence == "purged":
        raise SessionPurged(following.session)
    if following.seq == 0:
        raise NoSuchSession(following.session)


class _Live:
    """Prints what comes: a hint says when to look, the log alone says what there is."""

    def __init__(self, log: Log, following: Following, *, json: bool) -> None:
        self._log, self._following, self._json = log, following, json
        self._down = False

    async def run(self, hints: "asyncio.Queue[Message]") -> None:
        """Go on until the session is purged."""
        while True:
            heard = await _heard(hints)
            pause = LOOK_FIRST
            while not await self._look() and heard and hints.empty() and pause <= LOOK_MOST:
                await asyncio.sleep(pause)
                pause *= 2

    async def _look(self) -> bool:
        """Print what is new; whether there was anything."""
        before = self._following.seq
        try:
            async for found in self._following.more():
                self._print(found)
            self._down = False
        except BusUnavailable as exc:
            if not self._down:
                note(f"{exc}; still trying")
            self._down = True
            await asyncio.sleep(LOOK_MOST)
        _check(self._following)
        return self._following.seq != before

    def _print(self, found: list[Event] | Rewound) -> None:
        if isinstance(found, Rewound):
            note(f"what came after seq {found.to} was a fenced writer's and does not count")
            return
        for event in found:
            _show(event, json=self._json)


async def _heard(hints: "asyncio.Queue[Message]") -> bool:
    """Wait for a hint, but not for ever: hints may be lost. Whether one came."""
    try:
        await asyncio.wait_for(hints.get(), LOOK_MOST)
    except TimeoutError:
        return False
    while not hints.empty():
        hints.get_nowait()
    return True


def _show(event: Event, *, json: bool) -> None:
    if json:
        sys.stdout.buffer.write(event.body + b"\n")
        sys.stdout.buffer.flush()
        return
    when = event.ts[11:19] if len(event.ts) > 19 else event.ts
    style = STYLES.get(event.type, "")
    say_briefly(
        (f"{event.seq:>6}  {printable(when)}  ", "dim"),
        (f"{printable(event.type):<18}  ", style),
        printable(tell(event)),
    )
