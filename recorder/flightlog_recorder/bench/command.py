"""`flightlog bench`: Flightlog's speed by the floor measured in the same run."""

import asyncio
import json as jsons
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from flightlog_recorder.bench import (
    appending,
    bed,
    fleet,
    footprint,
    growing,
    memory,
    projecting,
    racing,
    replaying,
    report,
    resuming,
    snapshotting,
    travelling,
)
from flightlog_recorder.bench.bed import Bed, Sizes
from flightlog_recorder.bench.row import Row
from flightlog_recorder.cli import output, target
from flightlog_recorder.cli.output import Exit, Usage

Family = Callable[[Bed], AsyncIterator[Row]]
FAMILIES: dict[str, Family] = {
    "append": appending.rows,
    "resume": resuming.rows,
    "race": racing.rows,
    "replay": replaying.rows,
    "projector": projecting.rows,
    "growth": growing.rows,
    "memory": memory.rows,
    "footprint": footprint.rows,
    "snapshots": snapshotting.rows,
    "fleet": fleet.rows,
    "travel": travelling.rows,
}


def command(
    *,
    quick: Annotated[bool, typer.Option(help="Small sizes: does it run, not how fast.")] = False,
    full: Annotated[
        bool,
        typer.Option(help=f"Memory and time travel at {bed.LARGE_LOG:,} events; minutes more."),
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(metavar="FAMILY", help=f"One of: {', '.join(FAMILIES)}.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Turns of floor and ours.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the JSON to a file as well.")] = None,
) -> None:
    """Measure appends, resume, replay and the projector on servers of its own."""
    sizes = bed.QUICK if quick else bed.USUAL
    sizes = (
        replace(sizes, large_log=bed.LARGE_LOG, distant=bed.LARGE_LOG, lengths=bed.LENGTHS)
        if full
        else sizes
    )
    sizes = replace(sizes, rounds=rounds) if rounds else sizes
    target.run(_run(sizes, only or list(FAMILIES), json=json, out=out))


async def _run(sizes: Sizes, families: list[str], *, json: bool, out: Path | None) -> Exit:
    if unknown := set(families) - set(FAMILIES):
        raise Usage(f"no such family: {', '.join(sorted(unknown))}")
    about = {"machine": bed.machine(), "sizes": output.fields(sizes)}
    began = time.monotonic()
    rows = await _measure(sizes, families, Console(stderr=json, highlight=False))
    result = report.document(rows, {**about, "seconds": round(time.monotonic() - began, 1)})
    if out:
        await asyncio.to_thread(out.write_text, jsons.dumps(result, indent=2) + "\n")
    if json:
        output.show_json(result)
    return Exit.FINE


async def _measure(sizes: Sizes, families: list[str], console: Console) -> list[Row]:
    """Measure, and show the table grow; in a pipe it is printed once, at its end."""
    rows: list[Row] = []
    with Live(console=console, vertical_overflow="visible", auto_refresh=False) as live:
        for name in families:
            async with bed.made(sizes) as ready:
                _show(live, rows, f"measuring: {name}")
                async for row in FAMILIES[name](ready):
                    rows.append(row)
                    _show(live, rows, f"measuring: {name}")
        _show(live, rows, report.verdict(rows))
    return rows


def _show(live: Live, rows: list[Row], below: str) -> None:
    live.update(Group(report.table(rows), Text(f"\n{below}\n")), refresh=live.console.is_terminal)
