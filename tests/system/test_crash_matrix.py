"""A harness or a purge killed at some of its await points; `make crash-matrix` takes them all."""

from pathlib import Path

import pytest

import flightlog
from flightlog_recorder.embedded import Servers
from tests.matrix.cell import ROWS, Bench, Row
from tests.scripted import TENANT

SAMPLE = 3  # cells of each row, spread evenly


@pytest.mark.timeout(240)  # up to 6 processes a cell, each about a second on a busy machine
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name}-{row.lost}")
async def test_a_process_killed_at_an_await_point_leaves_nothing_lost_doubled_or_stuck(
    servers: Servers, tmp_path: Path, row: Row
) -> None:
    connecting = flightlog.connect(tenant=TENANT, nats=servers.nats_url, redis=servers.redis_url)
    async with connecting as log:
        bench = Bench(servers, log, tmp_path)
        total = await bench.awaits(row)
        points = sorted({1 + total * n // SAMPLE for n in range(SAMPLE)})
        cells = [cell for last in points if (cell := await bench.judge(row, last)) is not None]
    assert {cell.place: cell.wrong for cell in cells if cell.wrong} == {}
    assert len(cells) >= SAMPLE - 1  # the last point of all may not be reached again
