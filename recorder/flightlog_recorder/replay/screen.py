"""What a walk shows: a title, the events around the place, a pane below or beside them. Pure."""

import re
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from rich.cells import cell_len, chop_cells
from rich.text import Text

from flightlog.event import Event
from flightlog_recorder.cli.output import printable
from flightlog_recorder.replay import strip
from flightlog_recorder.replay.choice import is_error
from flightlog_recorder.replay.effects import effect
from flightlog_recorder.replay.stepper import (
    HELP,
    PANE_KEYS,
    PROMPTS,
    Pane,
    View,
    scrolled,
)
from flightlog_recorder.replay.strip import Strip

WIDE = 130  # columns from which on the pane stands beside the events
HINTS = ("← → step", "g jump", "e error", "t tool", "/ search", "↑ ↓ scroll")  # as many as fit
ALWAYS = ("? help", "q quit")
LIT = "black on yellow"  # what was searched for

TYPES = {
    "user_message": "bold cyan",
    "model_request": "blue",
    "model_response": "green",
    "tool_call": "yellow",
    "tool_result": "yellow",
    "decision_requested": "bold red",
    "decision_made": "bold magenta",
}


class Shown(Struct, frozen=True):
    """What is known of the place: the events around it, a line on its state, the pane's lines."""

    session: str
    events: Sequence[Event]
    headline: str
    pane: Sequence[Strip]
    damage: str | None = None


class Line(Struct, frozen=True):
    """A line of the screen; `right` stands behind column `at`, however wide the left one turns out.

    Terminals disagree on the width of some signs (emoji, what is combined): nothing may hang on it.
    """

    left: Text
    right: Text | None = None
    at: int = 0


class Room(Struct, frozen=True):
    """How the screen is divided: rows of events and of the pane, columns of both."""

    wide: bool
    rows: int
    pane: int
    left: int
    right: int


def room(columns: int, rows: int) -> Room:
    """How a screen of this size is divided; title, state, rule and bottom take a row each."""
    free = max(2, rows - 4)
    if columns >= WIDE:
        left = columns * 9 // 20
        return Room(wide=True, rows=free, pane=free, left=left, right=columns - left - 3)
    listed = max(1, min(12, free * 2 // 5))
    return Room(False, listed, max(1, free - listed), columns, columns)


def window(view: View, rows: int) -> range:
    """The seqs of the events that are listed around the place."""
    first = max(1, min(view.seq - rows // 2, view.last - rows + 1))
    return range(first, min(view.last, first + rows - 1) + 1)


def frame(view: View, shown: Shown, columns: int, rows: int) -> list[Line]:
    """The screen, line by line, whatever the log holds."""
    space = room(columns, rows)
    view = scrolled(view, len(shown.pane), space.pane)
    listed = [_row(event, at=view.seq) for event in shown.events]
    pane = [_pane_line(line) for line in shown.pane[view.scroll : view.scroll + space.pane]]
    for line in (*listed, *pane):
        _light(line, view.words)
    listed += [Text()] * (space.rows - len(listed))
    pane += [Text()] * (space.pane - len(pane))
    head = [_title(view, shown, columns), Line(_state(shown))]
    tabs, bottom = Line(_tabs(view, len(shown.pane), space)), Line(_bottom(view, shown, columns))
    if space.wide:
        beside = zip(listed, pane, strict=True)
        body = [
            Line(left, Text.assemble((" │ ", "dim"), right), space.left) for left, right in beside
        ]
        return [*head, tabs, *body, bottom]
    return [*head, *map(Line, listed), tabs, *map(Line, pane), bottom]


def wrapped(lines: Sequence[Strip], width: int) -> list[Strip]:
    """The lines as they are shown: masked, and those that are too long on more than one."""
    return [
        Strip(part, line.style) for line in lines for part in _folded(printable(line.text), width)
    ]


def first_with(words: str, lines: Sequence[Strip]) -> int | None:
    """The first line that has the words in it."""
    pattern = re.compile(words, re.IGNORECASE)
    return next((at for at, line in enumerate(lines) if pattern.search(line.text)), None)


def _folded(text: str, width: int) -> list[str]:
    """A line in pieces that fit, between words where it can; the later ones stand further right."""
    found: list[str] = []
    indent = ""
    while cell_len(indent + text) > width:
        space = width - len(indent)
        piece = chop_cells(text[: 4 * width], space)[0]
        words = piece.rfind(" ", 2 * len(piece) // 3)
        if words > 0 and text[len(piece)] != " ":
            piece = piece[:words]
        found.append(indent + piece)
        if not indent:
            indent = " " * min(len(text) - len(text.lstrip()) + 2, width // 3)
        text = text[len(piece) :].lstrip(" ")
    return [*found, indent + text] if text or not found else found


def _light(line: Text, words: str) -> None:
    if words:
        line.highlight_regex(re.compile(words, re.IGNORECASE), LIT)


def help_lines() -> list[Strip]:
    """The keys."""
    keys = [Strip(f"{keys:<20} {what}") for keys, what in HELP]
    return [
        *keys,
        Strip(""),
        Strip(f"{'✗ !':<20} in the list: an error, a call with an effect outside", "dim"),
    ]


def _title(view: View, shown: Shown, columns: int) -> Line:
    """Where one is; what there is no room for is left out, the session last."""
    here = next((event for event in shown.events if event.seq == view.seq), None)
    when = printable(here.ts[:19].replace("T", " ")) if here else ""
    place, session = f"  {view.seq:,} of {view.last:,} ", printable(shown.session)
    left = Text.assemble((" flightlog replay ", "reverse bold"), f"  {session}")
    right = next(
        (each for each in (when, when[11:]) if left.cell_len + len(each + place) < columns), ""
    )
    if left.cell_len + len(right + place) >= columns:
        left = Text(f" {session}", "bold")
    told = Text.assemble((right, "dim"), place)
    return Line(left, told, max(0, columns - told.cell_len))


def _state(shown: Shown) -> Text:
    return Text(f" {printable(shown.headline)}", "bold")


def _row(event: Event, *, at: int) -> Text:
    here = event.seq == at
    mark = ("▸", "bold") if here else (" ", "")
    sign = (
        ("✗", "bold red") if is_error(event) else ("!", "magenta") if effect(event) else (" ", "")
    )
    style = TYPES.get(event.type, "")
    line = Text.assemble(
        mark,
        (f"{event.seq:>7,} ", "bold" if here else "dim"),
        sign,
        (f" {printable(event.type):<18} ", style),
        (printable(strip.event_line(event)), "" if here else "dim"),
    )
    if here:
        line.stylize("bold")
    return line


def _tabs(view: View, lines: int, space: Room) -> Text:
    """The panes with their keys, and what there is above and below the lines that are shown."""
    width = space.left + 3 + space.right if space.wide else space.left
    above, below = view.scroll, max(0, lines - view.scroll - space.pane)
    told = "".join(f" {sign} {n:,}" for sign, n in (("↑", above), ("↓", below)) if n)
    line = _names(view.pane, with_keys=True)
    if line.cell_len + len(told) + 2 > width:
        line = _names(view.pane, with_keys=False)
    told = f"{told} ─" if told else ""
    return line.append("─" * max(0, width - line.cell_len - len(told)), "dim").append(told, "dim")


def _names(shown: Pane, *, with_keys: bool) -> Text:
    line = Text("─", "dim")
    for key, name in PANE_KEYS.items():
        style = "reverse" if name == shown else "dim"
        if with_keys:
            line.append(f" {key} ", "reverse bold" if name == shown else "bold")
        line.append(f"{name} " if with_keys else f" {name} ", style)
        line.append("─", "dim")
    return line


def _pane_line(line: Strip) -> Text:
    return Text(f" {line.text}", line.style)


def _bottom(view: View, shown: Shown, columns: int) -> Text:
    if view.prompt is not None:
        asked = PROMPTS[view.prompt.kind]
        space = max(1, columns - len(asked) - 4)
        typed = printable(view.prompt.text)
        while cell_len(typed) > space:
            typed = typed[1 + (cell_len(typed) - space) // 2 :]
        return Text.assemble((f" {asked}", "bold"), typed, ("▏", "blink"))
    if view.said:
        return Text(f" {printable(view.said)}", "bold yellow")
    if shown.damage is not None and view.seq == view.last:
        return Text(f" {printable(shown.damage)}", "bold red")
    return Text(f" {hints(columns - 2)}", "dim")


def hints(columns: int) -> str:
    """The keys that there is room for; how to learn the others is always among them."""
    told = ["   ".join((*HINTS[:count], *ALWAYS)) for count in range(len(HINTS) + 1)]
    return next((text for text in reversed(told) if len(text) <= columns), told[0])


def passed(before: Event | None, event: Event) -> str:
    """The time between two events, for people; empty where it cannot be told."""
    if before is None:
        return ""
    try:
        spent = datetime.fromisoformat(event.ts) - datetime.fromisoformat(before.ts)
    except (ValueError, TypeError):
        return ""
    return f"{spent.total_seconds():+.3f} s after {before.seq}"
