"""What a walk shows: a title, the events around the place, a pane below or beside them. Pure."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from rich.cells import chop_cells
from rich.text import Text

from flightlog.event import Event
from flightlog_recorder.cli.output import printable
from flightlog_recorder.replay import strip
from flightlog_recorder.replay.choice import is_error
from flightlog_recorder.replay.effects import effect
from flightlog_recorder.replay.stepper import HELP, PANES, PROMPTS, View, scrolled
from flightlog_recorder.replay.strip import Strip

WIDE = 130  # columns from which on the pane stands beside the events
HINTS = "← → step   g jump   e error   t tool   / search   v s d r x panes   ? help   q quit"

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


def frame(view: View, shown: Shown, columns: int, rows: int) -> list[Text]:
    """The screen, line by line, whatever the log holds."""
    space = room(columns, rows)
    view = scrolled(view, len(shown.pane), space.pane)
    listed = [_row(event, at=view.seq) for event in shown.events]
    pane = [_pane_line(line) for line in shown.pane[view.scroll : view.scroll + space.pane]]
    listed += [Text()] * (space.rows - len(listed))
    pane += [Text()] * (space.pane - len(pane))
    head = [_title(view, shown, columns), _state(shown)]
    tabs = _tabs(view, len(shown.pane), space)
    if space.wide:
        body = [_beside(left, right, space.left) for left, right in zip(listed, pane, strict=True)]
        return [*head, tabs, *body, _bottom(view, shown)]
    return [*head, *listed, tabs, *pane, _bottom(view, shown)]


def wrapped(lines: Sequence[Strip], width: int) -> list[Strip]:
    """The lines as they are shown: masked, and those that are too long on more than one."""
    found: list[Strip] = []
    for line in lines:
        text = printable(line.text)
        found += [Strip(part, line.style) for part in chop_cells(text, width)] or [line]
    return found


def help_lines() -> list[Strip]:
    """The keys."""
    keys = [Strip(f"{keys:<20} {what}") for keys, what in HELP]
    return [*keys, Strip(""), Strip(f"{'✗ !':<20} an error, a call with an effect outside", "dim")]


def _title(view: View, shown: Shown, columns: int) -> Text:
    here = next((event for event in shown.events if event.seq == view.seq), None)
    when = printable(here.ts[:19].replace("T", " ")) if here else ""
    left = Text.assemble((" flightlog replay ", "reverse bold"), f"  {printable(shown.session)}")
    right = Text.assemble((when, "dim"), f"  {view.seq:,} of {view.last:,} ")
    left.truncate(max(0, columns - right.cell_len - 1), overflow="ellipsis")
    gap = " " * max(1, columns - left.cell_len - right.cell_len)
    return Text.assemble(left, gap, right)


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
    names = (*PANES, "help") if view.pane == "help" else PANES
    line = Text("──", "dim")
    for name in names:
        line.append(f" {name} ", "reverse" if name == view.pane else "dim")
        line.append("─", "dim")
    more = lines - view.scroll - space.pane
    told = f" {more:,} more lines ─" if more > 0 else ""
    width = space.left + 3 + space.right if space.wide else space.left
    return line.append("─" * max(0, width - line.cell_len - len(told)), "dim").append(told, "dim")


def _pane_line(line: Strip) -> Text:
    return Text(f" {line.text}", line.style)


def _beside(left: Text, right: Text, width: int) -> Text:
    left = left.copy()
    left.truncate(width, overflow="ellipsis", pad=True)
    return Text.assemble(left, (" │ ", "dim"), right)


def _bottom(view: View, shown: Shown) -> Text:
    if view.prompt is not None:
        asked = PROMPTS[view.prompt.kind]
        return Text.assemble((f" {asked}", "bold"), printable(view.prompt.text), ("▏", "blink"))
    if view.said:
        return Text(f" {printable(view.said)}", "bold yellow")
    if shown.damage is not None and view.seq == view.last:
        return Text(f" {printable(shown.damage)}", "bold red")
    return Text(f" {HINTS}", "dim")


def passed(before: Event | None, event: Event) -> str:
    """The time between two events, for people; empty where it cannot be told."""
    if before is None:
        return ""
    try:
        spent = datetime.fromisoformat(event.ts) - datetime.fromisoformat(before.ts)
    except (ValueError, TypeError):
        return ""
    return f"{spent.total_seconds():+.3f} s after {before.seq}"
