"""A walk through a tape: takes keys, asks the tape, draws. The rules are `stepper`'s."""

import asyncio
import re
from collections.abc import Coroutine
from typing import Any

from msgspec import Raw
from msgspec.structs import replace
from rich.cells import chop_cells

from flightlog import FlightlogError
from flightlog.event import Event
from flightlog.session_state import SessionState
from flightlog_recorder.cli.output import printable
from flightlog_recorder.replay import (
    choice,
    effects,
    picture,
    request,
    screen,
    stepper,
    strip,
    summary,
)
from flightlog_recorder.replay.screen import Shown
from flightlog_recorder.replay.stepper import Ask, Find, Go, Last, Pane, Quit, View
from flightlog_recorder.replay.strip import Strip
from flightlog_recorder.replay.tape import NotThere, Tape, Test
from flightlog_recorder.replay.terminal import RESIZED, Terminal
from flightlog_recorder.replay.words import Words, near

BUSY_SECONDS = 0.15  # until it is said that something takes its time
STOPS = frozenset({"esc", "q", "ctrl-c"})


async def walk(tape: Tape, terminal: Terminal, *, seq: int) -> None:
    """Walk from an event on, until somebody leaves."""
    await _Player(tape, terminal).run(seq)


class _Player:
    def __init__(self, tape: Tape, terminal: Terminal) -> None:
        self._tape, self._terminal = tape, terminal
        self._held: tuple[tuple[int, Pane], list[Strip]] | None = None

    async def run(self, seq: int) -> None:
        view = View(seq=0, last=self._tape.last)
        view, ask = await self._answered(view, Go(max(1, min(seq, self._tape.last)))), None
        while not isinstance(ask, Quit):
            if ask is not None:
                view = await self._answered(view, ask)
            view = await self._drawn(view)
            key = await self._terminal.key()
            view, ask = (view, None) if key == RESIZED else stepper.press(view, key)

    async def _drawn(self, view: View) -> View:
        """Draw, unless more was typed already; the view with a scroll that fits."""
        if self._terminal.has_keys:
            return view
        columns, rows = self._terminal.size
        try:
            found = await self._patiently(view, self._shown(view, columns, rows))
        except FlightlogError as exc:
            self._say(str(exc))
            return view
        if found is None:
            self._say("stopped")
            return view
        view, shown = found
        self._terminal.draw(screen.frame(view, shown, columns, rows))
        return stepper.scrolled(view, len(shown.pane), screen.room(columns, rows).pane)

    async def _answered(self, view: View, ask: Ask) -> View:
        """What the view is once the tape has answered; where it was if it cannot, or is stopped."""
        found = await self._patiently(view, self._answer(view, ask))
        return stepper.missed(view, "stopped") if found is None else found

    async def _answer(self, view: View, ask: Ask) -> View:
        try:
            match ask:
                case Go(seq):
                    return await self._go(view, seq)
                case Last():
                    await self._tape.grow()
                    return await self._go(view, self._tape.last)
                case Find():
                    return await self._find(view, ask)
                case Quit():
                    return view
        except FlightlogError as exc:
            return stepper.missed(view, str(exc))

    async def _go(self, view: View, seq: int) -> View:
        if seq > self._tape.last:
            await self._tape.grow()
        seq = min(seq, self._tape.last)
        await self._tape.state(seq)
        return stepper.arrived(view, min(seq, self._tape.last), self._tape.last)

    async def _find(self, view: View, ask: Find) -> View:
        words = Words(re.compile(ask.words, re.IGNORECASE), self._tape.whole)
        search = self._tape.next if ask.forward else self._tape.previous
        test = _test(ask, words)
        found = await search(view.seq, test)
        if found is not None:
            return await self._lit(await self._go(view, found), ask)
        if ask.target == "words":
            found = await search(0 if ask.forward else self._tape.last + 1, test)
        if found is None:
            why = " · ".join(filter(None, (stepper.nothing(ask), words.told)))
            return stepper.missed(replace(view, last=self._tape.last), why)
        there = await self._lit(await self._go(view, found), ask)
        return replace(there, said=stepper.round_the_end(view, ask, found))

    async def _lit(self, view: View, ask: Find) -> View:
        """The view scrolled to the words, if the pane has them further down."""
        if ask.target != "words":
            return view
        columns, rows = self._terminal.size
        space = screen.room(columns, rows)
        lines = screen.wrapped(await self._pane(view), space.right - 2)
        at = screen.first_with(ask.words, lines) or 0
        return replace(view, scroll=max(0, at - space.pane // 2) if at >= space.pane else 0)

    async def _patiently(self, view: View, work: Coroutine[Any, Any, Any]) -> Any:
        """The work's result; None if somebody stops it. Keys that come meanwhile are kept."""
        task = asyncio.create_task(work)
        kept: list[str] = []
        try:
            while not task.done():
                await asyncio.wait([task], timeout=BUSY_SECONDS)
                if task.done():
                    break
                self._say(f"reading the log … esc stops   {view.seq:,} of {view.last:,}")
                while self._terminal.has_keys:
                    key = await self._terminal.key()
                    if key in STOPS:
                        kept = [key] if key == "ctrl-c" else []
                        return None
                    kept.append(key)
            return task.result()
        finally:
            await _ended(task)
            self._terminal.put_back(kept)

    def _say(self, text: str) -> None:
        """Say it on the bottom line, and leave the rest as it was."""
        columns, rows = self._terminal.size
        line = chop_cells(printable(f" {text}"), columns - 1)[0]
        self._terminal.write(f"\x1b[{rows};1H\x1b[7m{line}\x1b[0m\x1b[K")

    async def _shown(self, view: View, columns: int, rows: int) -> tuple[View, Shown]:
        tape, space = self._tape, screen.room(columns, rows)
        try:
            events = [await tape.event(seq) for seq in screen.window(view, space.rows)]
            state = (await tape.state(view.seq)).state
        except NotThere:  # damage, or a writer that lost: the log is shorter than it seemed
            if view.last <= tape.last:
                raise
            view = replace(view, seq=min(view.seq, tape.last), last=tape.last)
            return await self._shown(view, columns, rows)
        pane = screen.wrapped(await self._pane(view), space.right - 2)
        shown = Shown(tape.session, events, summary.headline(state), pane, tape.damage)
        return view, shown

    async def _pane(self, view: View) -> list[Strip]:
        """The pane's lines; they are kept while the view stays at the event."""
        place = (view.seq, view.pane)
        if self._held is None or self._held[0] != place:
            self._held = (place, await self._lines(view))
        return self._held[1]

    async def _lines(self, view: View) -> list[Strip]:
        tape, seq = self._tape, view.seq
        match view.pane:
            case "help":
                return screen.help_lines()
            case "event":
                before = await tape.event(seq - 1) if seq > 1 else None
                event = await tape.event(seq)
                return _event(event, before, await near(event, tape.whole))
            case "state":
                return _state((await tape.state(seq)).state)
            case "diff":
                was, after = await tape.state(seq - 1), await tape.state(seq)
                return strip.changes(picture.changes(was.state, after.state))
            case "request":
                return await self._request(seq)
            case "effects":
                return _effects(await effects.effects(tape.events, after=seq), seq)

    async def _request(self, seq: int) -> list[Strip]:
        try:
            found = await request.proved(self._tape, seq)
        except FlightlogError as exc:
            return [Strip(str(exc), "dim")]
        proof = Strip(f"made from the log up to {found.upto}, proved by {found.digest}", "green")
        return [proof, Strip(""), *strip.value(found.request)]


def _test(ask: Find, words: Words) -> Test:
    match ask.target:
        case "error":
            return choice.is_error
        case "tool call":
            return choice.is_tool_call
        case "words":
            return words.found


def _event(event: Event, before: Event | None, carried: Raw) -> list[Strip]:
    took = screen.passed(before, event)
    parent = f"answers {event.parent_seq}" if event.parent_seq is not None else ""
    head = "  ".join(part for part in (event.ts, took, parent, event.harness_version) if part)
    return [Strip(head, "dim"), Strip(""), *strip.payload(carried)]


def _state(state: SessionState) -> list[Strip]:
    told = [Strip(f"{name:<8} {text}") for name, text in summary.lines(state)]
    context = [Strip(line) for line in summary.context(state)]
    rest = strip.value(picture.apart(state))
    return [*told, Strip(""), Strip("context, latest first", "dim"), *context, Strip(""), *rest]


def _effects(found: effects.Effects, seq: int) -> list[Strip]:
    if not found.count and found.upto is None:
        return [Strip(f"no external effect lies behind {seq:,}", "dim")]
    head = Strip(effects.told(found, after=seq), "bold")
    return [head, Strip(""), *(Strip(f"{each.seq:>7,}  {each.tool}") for each in found.first)]


async def _ended(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.wait([task])
