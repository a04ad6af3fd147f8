"""The benchmark's result: a table for people, JSON for machines."""

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from flightlog_recorder.bench.row import Row


def table(rows: Sequence[Row]) -> Table:
    """All rows; under each name what its floor is, dimmed. Fits 80 columns."""
    found = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    found.add_column("")
    for name in ("measured", "floor", "ratio", "target"):
        found.add_column(name, justify="right", no_wrap=True)
    found.add_column("", no_wrap=True)
    for row in rows:
        found.add_row(*_cells(row))
    return found


def _cells(row: Row) -> list[str | Text]:
    return [
        Text(row.name).append_text(_below(row)),
        f"{_number(row.measured)} {row.unit}",
        _number(row.floor),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        "" if row.target is None else f"{'<=' if row.at_most else '>='} {row.target:g}",
        _verdict(row.ok),
    ]


def _below(row: Row) -> Text:
    parts = [f"by {row.floor_name}" if row.floor_name else "", row.note]
    text = ", ".join(part for part in parts if part)
    return Text(f"\n  {text}" if text else "", style="dim")


def _verdict(ok: bool | None) -> Text:
    if ok is None:
        return Text()
    return Text("ok", style="green") if ok else Text("below", style="bold red")


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def verdict(rows: Sequence[Row]) -> str:
    """What all rows with a target come to."""
    judged = [row.ok for row in rows if row.ok is not None]
    return f"{sum(judged)} of {len(judged)} targets are met"


def document(rows: Sequence[Row], about: dict[str, Any]) -> dict[str, Any]:
    """The same for machines; `ok` is null for rows that have no target."""
    return {**about, "rows": [{**msgspec.to_builtins(row), "ok": row.ok} for row in rows]}
