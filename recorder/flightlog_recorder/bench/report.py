"""The benchmark's result: a table for people, JSON for machines."""

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flightlog_recorder.bench.row import Row

_WORDS = {True: Text("ok", style="green"), False: Text("below", style="bold red"), None: Text("")}


def table(rows: Sequence[Row]) -> Table:
    """All rows, one line each where the terminal is wide enough."""
    found = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    found.add_column("what")
    for name in ("measured", "", "floor"):
        found.add_column(name, justify="left" if not name else "right", no_wrap=True)
    found.add_column("the floor is")
    for name in ("ratio", "target"):
        found.add_column(name, justify="right", no_wrap=True)
    found.add_column("", no_wrap=True)
    found.add_column("note", style="dim")
    for row in rows:
        found.add_row(*_cells(row))
    return found


def _cells(row: Row) -> list[str | Text]:
    return [
        row.name,
        _number(row.measured),
        row.unit,
        _number(row.floor),
        row.floor_name,
        "" if row.ratio is None else f"{row.ratio:.2f}",
        "" if row.target is None else f"{'<=' if row.at_most else '>='} {row.target:g}",
        _WORDS[row.ok],
        row.note,
    ]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def show(console: Console, rows: Sequence[Row]) -> None:
    """Print the table and what it comes to."""
    console.print()
    console.print(table(rows))
    judged = [row.ok for row in rows if row.ok is not None]
    console.print(f"\n{sum(judged)} of {len(judged)} targets are met")


def document(rows: Sequence[Row], about: dict[str, Any]) -> dict[str, Any]:
    """The same for machines; `ok` is null for rows that have no target."""
    return {**about, "rows": [{**msgspec.to_builtins(row), "ok": row.ok} for row in rows]}
