"""What commands show: tables and lines for people, plain when piped, JSON for machines."""

import json
import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from flightlog import (
    BusUnavailable,
    CredentialsUnusable,
    Fenced,
    FlightlogError,
    InvalidName,
    InvalidValue,
    LayoutRefused,
    NotPermitted,
    SessionLive,
    StoreUnavailable,
)

Cell = str | Text
GAP = "  "  # between two columns
LEAST = 8  # cells that a column keeps, however narrow the terminal is


class Exit(IntEnum):
    """What a command's exit code says."""

    FINE = 0
    PROBLEM = 1
    USAGE = 2
    NO_BUS = 3
    FENCED = 4
    INTERRUPTED = 130


class Usage(FlightlogError):
    """The command was called in a way that cannot be meant."""


def exit_code(error: FlightlogError) -> Exit:
    """The exit code of a command that ended with this error."""
    match error:
        case Usage() | InvalidName() | InvalidValue():
            return Exit.USAGE
        case (
            BusUnavailable()
            | CredentialsUnusable()
            | LayoutRefused()
            | NotPermitted()
            | StoreUnavailable()
        ):
            return Exit.NO_BUS
        case Fenced() | SessionLive():
            return Exit.FENCED
        case _:
            return Exit.PROBLEM


def is_terminal() -> bool:
    """Whether a person is watching stdout."""
    return sys.stdout.isatty()


def printable(text: str) -> str:
    """Text that cannot move the cursor, change colours or break the line of a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() else _visible(char) for char in text)


def _visible(char: str) -> str:
    if char in "\n\r\t":
        return " "
    return f"\\u{ord(char):04x}"


def say(*parts: Cell | tuple[str, str]) -> None:
    """Print one line; parts are texts, or (text, style) pairs."""
    line = Text.assemble(*parts)
    if is_terminal():
        Console().print(line, soft_wrap=True)
    else:
        _write(line.plain)


def say_briefly(*parts: Cell | tuple[str, str]) -> None:
    """Print one line, cut where the terminal ends; a pipe gets it whole."""
    line = Text.assemble(*parts)
    if is_terminal():
        line.truncate(Console().width, overflow="ellipsis")
    say(line)


def show_json(value: object) -> None:
    """Print one JSON document, for machines."""
    _write(json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=2))


def show_json_line(value: object) -> None:
    """Print one JSON document on a line of its own: one of many."""
    _write(json.dumps(msgspec.to_builtins(value), ensure_ascii=False))


def show_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    right: str = "",
    shrink: str = "",
) -> None:
    """Print a table; `right` names the columns of numbers, `shrink` those that may be cut.

    A pipe gets every cell whole; a terminal gets rows that fit it, if they can.
    """
    grid = [[_text(cell) for cell in row] for row in rows]
    widths = [
        max(map(cell_len, (name, *map(str, column)))) for name, column in _by_name(columns, grid)
    ]
    if is_terminal():
        widths = fitted(columns, widths, shrink.split(), Console().width)
    numbers = [name in right.split() for name in columns]
    for row in [[Text(name, "dim") for name in columns], *grid]:
        say(*_line(row, widths, numbers))


def _text(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else Text(cell)


def _by_name(
    columns: Sequence[str], grid: Sequence[Sequence[Text]]
) -> list[tuple[str, list[Text]]]:
    return [(name, [row[at] for row in grid]) for at, name in enumerate(columns)]


def fitted(
    columns: Sequence[str], widths: Sequence[int], shrink: Sequence[str], total: int
) -> list[int]:
    """Widths that fit `total` cells: the widest of those that may shrink gives way first."""
    fit = list(widths)
    may = [at for at, name in enumerate(columns) if name in shrink]
    over = sum(fit) + len(GAP) * (len(fit) - 1) - total
    while over > 0 and (widest := max(may, key=lambda at: fit[at], default=None)) is not None:
        if fit[widest] <= LEAST:
            break
        fit[widest] -= 1
        over -= 1
    return fit


def _line(row: Sequence[Text], widths: Sequence[int], numbers: Sequence[bool]) -> list[Text]:
    parts: list[Text] = []
    for cell, width, is_number in zip(row, widths, numbers, strict=True):
        shown = cell.copy()
        shown.truncate(width, overflow="ellipsis")
        room = " " * (width - shown.cell_len)
        parts.append(Text.assemble(room, shown) if is_number else Text.assemble(shown, room))
        parts.append(Text(GAP))
    line = Text.assemble(*parts)
    line.rstrip()
    return [line]


def note(text: str) -> None:
    """Tell the operator something beside the result, on stderr."""
    sys.stderr.write(f"flightlog: {printable(text)}\n")
    sys.stderr.flush()


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def mute() -> None:
    """Write no more: who read our output has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def number(value: float) -> str:
    """A count as people read it."""
    return f"{value:,}"


def dollars(value: float | None) -> str:
    """A sum of money as people read it; nothing where none is known."""
    if value is None:
        return ""
    return f"${value:,.2f}" if value >= 1 or value == 0 else f"${value:.4f}"


def seconds(value: float) -> str:
    """A duration as people read it."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min {rest:02d} s"
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} days"


def moment(stamp: str | None) -> str:
    """A time of the wire as people read it."""
    return printable((stamp or "")[:19].replace("T", " "))


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def fields(value: Any) -> dict[str, Any]:
    """A struct as a JSON object."""
    found: dict[str, Any] = msgspec.to_builtins(value)
    return found
