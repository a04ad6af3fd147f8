"""What commands show: tables and lines for people, plain when piped, JSON for machines."""

import json
import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flightlog import (
    BusUnavailable,
    Fenced,
    FlightlogError,
    InvalidName,
    InvalidValue,
    LayoutRefused,
    NotPermitted,
    StoreUnavailable,
)

Cell = str | Text
GAP = "  "  # between two columns of a plain table


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
        case BusUnavailable() | LayoutRefused() | NotPermitted() | StoreUnavailable():
            return Exit.NO_BUS
        case Fenced():
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


def show_json(value: object) -> None:
    """Print one JSON document, for machines."""
    _write(json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=2))


def show_json_line(value: object) -> None:
    """Print one JSON document on a line of its own: one of many."""
    _write(json.dumps(msgspec.to_builtins(value), ensure_ascii=False))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, right: str = "") -> None:
    """Print a table; `right` names the columns of numbers, with spaces between them.

    A pipe gets every cell whole, in columns that two spaces separate.
    """
    numbers = [name in right.split() for name in columns]
    if is_terminal():
        _show_rich(columns, rows, numbers)
    else:
        _show_plain([list(columns), *rows], numbers)


def _show_rich(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], numbers: Sequence[bool]
) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name, number in zip(columns, numbers, strict=True):
        first = name == columns[0]
        table.add_column(
            name,
            justify="right" if number else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=37 if first and name == "session" else None,
        )
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    Console().print(table)


def _show_plain(rows: Sequence[Sequence[Cell]], numbers: Sequence[bool]) -> None:
    texts = [[cell.plain if isinstance(cell, Text) else cell for cell in row] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(*texts, strict=True)]
    for row in texts:
        cells = [
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(row, widths, numbers, strict=True)
        ]
        _write(GAP.join(cells).rstrip())


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


def seconds(value: float) -> str:
    """A duration as people read it."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def fields(value: Any) -> dict[str, Any]:
    """A struct as a JSON object."""
    found: dict[str, Any] = msgspec.to_builtins(value)
    return found
