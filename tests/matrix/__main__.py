"""`python -m tests.matrix`: every cell, printed as a table by the place of death."""

import asyncio
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

import flightlog
from flightlog_recorder.embedded import embedded
from tests.matrix.cell import ROWS, Bench, Cell, Row
from tests.scripted import TENANT

AT_ONCE = 2  # processes, one a core


async def main() -> int:
    """Run the matrix; 1 if any cell is wrong."""
    with tempfile.TemporaryDirectory() as root, embedded() as servers:
        connecting = flightlog.connect(
            tenant=TENANT, nats=servers.nats_url, redis=servers.redis_url
        )
        async with connecting as log:
            bench = Bench(servers, log, Path(root))
            cells = [each for row in ROWS for each in await _row(bench, row)]
    return _show(cells)


async def _row(bench: Bench, row: Row) -> list[Cell]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(last: int) -> Cell | None:
        async with gate:
            return await bench.judge(row, last)

    total = await bench.awaits(row)
    found = await asyncio.gather(*(one(last) for last in range(1, total + 1)))
    return [cell for cell in found if cell is not None]


def _show(cells: Sequence[Cell]) -> int:
    places: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        places[cell.place].append(cell)
    table = Table("killed while suspended in", *(_title(row) for row in ROWS), "wrong")
    for place, found in sorted(places.items()):
        counts = [str(sum(cell.row == row for cell in found) or "") for row in ROWS]
        told = [f"{_title(c.row)} at {c.last}: {'; '.join(c.wrong)}" for c in found if c.wrong]
        table.add_row(place, *counts, "\n".join(told) or "-")
    Console().print(table)
    bad = sum(bool(cell.wrong) for cell in cells)
    print(f"{len(cells)} cells, {bad} wrong")
    return bool(bad)


def _title(row: Row) -> str:
    return f"{row.name}, acks lost" if row.lost else row.name


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
