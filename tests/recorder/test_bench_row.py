"""A row of the benchmark: ratios of rounds that took turns, and what a target means."""

import asyncio
import io

from rich.console import Console

from flightlog_recorder.bench import report, row
from flightlog_recorder.bench.row import Laps, Row


def printed(rows: list[Row], *, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(report.table(rows))
    return out.getvalue()


def made(ratio: float | None, target: float | None, *, at_most: bool = False) -> Row:
    return Row(name="r", unit="ms", measured=1.0, ratio=ratio, target=target, at_most=at_most)


def test_a_rate_is_compared_round_by_round_so_that_one_disturbed_round_decides_nothing() -> None:
    laps = Laps([1.0, 1.0, 9.0], [2.0, 2.0, 9.0])
    found = row.rate("r", laps, count=100, floor_name="bare", target=0.5)
    assert (found.measured, found.floor, found.ratio) == (50.0, 100.0, 0.5)
    assert found.ok is True


def test_a_duration_is_better_the_smaller_it_is() -> None:
    found = row.duration("r", Laps([0.010], [0.016]), floor_name="bare", target=1.5)
    assert (found.measured, found.floor, found.ratio) == (16.0, 10.0, 1.6)
    assert found.ok is False


def test_a_row_without_a_target_is_neither_met_nor_missed() -> None:
    assert made(1.0, None).ok is None
    assert made(1.0, 1.0).ok is True
    assert made(1.1, 1.0, at_most=True).ok is False


async def test_floor_and_ours_take_turns_and_change_who_goes_first() -> None:
    order: list[str] = []

    async def floor() -> None:
        order.append("floor")

    async def ours() -> None:
        order.append("ours")
        await asyncio.sleep(0)

    laps = await row.in_turns(floor, ours, rounds=3)
    assert order[:2] == ["floor", "ours"]  # not counted
    assert order[2:] == ["ours", "floor", "floor", "ours", "ours", "floor"]
    assert (len(laps.floor), len(laps.ours)) == (3, 3)


def test_the_table_fits_80_columns_and_says_which_rows_are_below() -> None:
    rows = [
        Row(
            name="32 sessions append, a projector beside",
            unit="events/s",
            measured=12_345.6,
            floor=12_345.6,
            floor_name="no projector",
            ratio=0.5,
            target=0.7,
            note="its acks, and its share of this machine's cores",
        ),
        made(1.0, None),
    ]
    text = printed(rows)
    assert max(map(len, text.splitlines())) <= 80
    assert "below" in text
    assert "12,346 events/s" in text
    assert report.verdict(rows) == "0 of 1 targets are met"


def test_the_document_holds_every_row_with_its_verdict() -> None:
    found = report.document([made(1.0, 0.5), made(None, None)], {"seconds": 1.0})
    assert found["seconds"] == 1.0
    assert [each["ok"] for each in found["rows"]] == [True, None]
