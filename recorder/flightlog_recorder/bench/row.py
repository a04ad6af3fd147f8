"""One row of the benchmark: a number of ours, the floor of the same run, and their ratio."""

import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median, quantiles

from msgspec import Struct
from msgspec.structs import replace

Work = Callable[[], Awaitable[object]]


class Row(Struct, frozen=True, kw_only=True):
    """`ratio` is `measured` by `floor`; `target` bounds it from below, or from above if `at_most`.

    Rows without a target are there to be known.
    """

    name: str
    unit: str
    measured: float
    floor: float | None = None
    floor_name: str = ""
    ratio: float | None = None
    target: float | None = None
    at_most: bool = False
    note: str = ""

    @property
    def ok(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None or self.ratio is None:
            return None
        return self.ratio <= self.target if self.at_most else self.ratio >= self.target


class Laps(Struct, frozen=True):
    """Seconds of each round, floor and ours in turns, so that noise hits both."""

    floor: list[float]
    ours: list[float]

    @property
    def slowdown(self) -> float:
        """Our time by the floor's: the median of the rounds' own ratios."""
        return median(a / b for a, b in zip(self.ours, self.floor, strict=True))


async def seconds(work: Work) -> float:
    """How long it takes, once."""
    gc.collect()
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def in_turns(floor: Work, ours: Work, *, rounds: int) -> Laps:
    """Measure both `rounds` times, alternating who goes first; one round before is not counted."""
    await seconds(floor)
    await seconds(ours)
    laps = Laps([], [])
    for n in range(rounds):
        for work in (floor, ours) if n % 2 else (ours, floor):
            (laps.floor if work is floor else laps.ours).append(await seconds(work))
    return laps


def rate(
    name: str, laps: Laps, *, count: int, floor_name: str, target: float, note: str = ""
) -> Row:
    """A row of `count` events per lap: more is better."""
    return Row(
        name=name,
        unit="events/s",
        measured=count / median(laps.ours),
        floor=count / median(laps.floor),
        floor_name=floor_name,
        ratio=1 / laps.slowdown,
        target=target,
        note=note,
    )


def duration(name: str, laps: Laps, *, floor_name: str, target: float, note: str = "") -> Row:
    """A row of milliseconds per lap: less is better."""
    return Row(
        name=name,
        unit="ms",
        measured=1000 * median(laps.ours),
        floor=1000 * median(laps.floor),
        floor_name=floor_name,
        ratio=laps.slowdown,
        target=target,
        at_most=True,
        note=note,
    )


def medians(name: str, laps: Laps, *, floor_name: str, target: float, note: str = "") -> Row:
    """A row of milliseconds whose laps are no pairs: each side's median."""
    made = duration(name, laps, floor_name=floor_name, target=target, note=note)
    return replace(made, ratio=median(laps.ours) / median(laps.floor))


def spread(values: Sequence[float]) -> str:
    """Half the range of the middle half of the rounds, by their median."""
    low, _, high = quantiles(values, n=4)
    return f"±{50 * (high - low) / median(values):.0f} %"
