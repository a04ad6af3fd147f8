"""`flightlog bench`: Flightlog's speed by the floor measured in the same run."""

import asyncio
import json as jsons
import time
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import replace
from rich.console import Console

from flightlog_recorder.bench import (
    appending,
    bed,
    footprint,
    projecting,
    replaying,
    report,
    resuming,
)
from flightlog_recorder.bench.bed import Bed, Sizes
from flightlog_recorder.bench.row import Row
from flightlog_recorder.cli import output, target
from flightlog_recorder.cli.output import Exit, Usage

Family = Callable[[Bed], AsyncIterator[Row]]
FAMILIES: dict[str, Family] = {
    "append": appending.rows,
    "resume": resuming.rows,
    "replay": replaying.rows,
    "projector": projecting.rows,
    "footprint": footprint.rows,
}


def command(
    *,
    quick: Annotated[bool, typer.Option(help="Small sizes: does it run, not how fast.")] = False,
    full: Annotated[
        bool, typer.Option(help=f"Memory at {bed.LARGE_LOG:,} events; minutes more.")
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
    sizes = replace(sizes, large_log=bed.LARGE_LOG) if full else sizes
    sizes = replace(sizes, rounds=rounds) if rounds else sizes
    target.run(_run(sizes, only or list(FAMILIES), json=json, out=out))


async def _run(sizes: Sizes, families: list[str], *, json: bool, out: Path | None) -> Exit:
    if unknown := set(families) - set(FAMILIES):
        raise Usage(f"no such family: {', '.join(sorted(unknown))}")
    console = Console(stderr=json, highlight=False)
    about = {"machine": bed.machine(), "sizes": output.fields(sizes)}
    began = time.monotonic()
    rows = await _measure(sizes, families, console)
    result = report.document(rows, {**about, "seconds": round(time.monotonic() - began, 1)})
    if out:
        await asyncio.to_thread(out.write_text, jsons.dumps(result, indent=2) + "\n")
    if json:
        output.show_json(result)
    else:
        report.show(console, rows)
    return Exit.FINE


async def _measure(sizes: Sizes, families: list[str], console: Console) -> list[Row]:
    rows: list[Row] = []
    waiting: Any = console.status("", spinner="dots", spinner_style="dim")
    with waiting if console.is_terminal else nullcontext():
        for name in families:
            waiting.update(f"[dim]measuring: {name}")
            async with bed.made(sizes) as ready:
                async for row in FAMILIES[name](ready):
                    rows.append(row)
                    ratio = "" if row.ratio is None else f"{row.ratio:.2f} of {row.floor_name}"
                    console.print(f"[dim]{row.name}: {row.measured:,.1f} {row.unit}  {ratio}")
    return rows
