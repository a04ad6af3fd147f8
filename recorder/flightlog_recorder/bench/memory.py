"""Peak memory of fresh processes that go through a long log, by that for a short one."""

import asyncio
import sys
from collections.abc import AsyncIterator

from flightlog.wire import subject as names
from flightlog_recorder.bench import reader, script
from flightlog_recorder.bench.bed import Bed
from flightlog_recorder.bench.replica import BenchFailed
from flightlog_recorder.bench.row import Row

FLAT = 1.1  # target, at most
BOUND = 256.0  # MiB, at most, for the resume of a log of 1 GB
_GIGABYTE = 1_000_000  # events of 1 KiB
READER = "flightlog_recorder.bench.reader"


async def rows(bed: Bed) -> AsyncIterator[Row]:
    """A row for each way to go through a log; both logs have the same, short context."""
    small, large = [await _planted(bed, n) for n in (bed.sizes.small_log, bed.sizes.large_log)]
    for verb in reader.VERBS:
        short, long = await _peak(bed, verb, small), await _peak(bed, verb, large)
        yield Row(
            name=f"peak memory, {verb} of {bed.sizes.large_log:,} events",
            unit="MiB",
            measured=long,
            floor=short,
            floor_name=f"{verb} of {bed.sizes.small_log:,} events",
            ratio=long / short,
            target=FLAT,
            at_most=True,
        )
        if verb == "resume" and bed.sizes.large_log >= _GIGABYTE:
            yield _bounded(long)


def _bounded(peak: float) -> Row:
    return Row(
        name="peak memory, resume of a log of 1 GB",
        unit="MiB",
        measured=peak,
        floor=BOUND,
        floor_name="the bound",
        ratio=peak / BOUND,
        target=1.0,
        at_most=True,
    )


async def _planted(bed: Bed, count: int) -> str:
    session = names.mint()
    await script.plant(bed.log, session, count)
    return session


async def _peak(bed: Bed, verb: str, session: str) -> float:
    """MiB that a fresh process had at most."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", READER, verb, session),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=bed.environment(),
    )
    said, complaint = await process.communicate()
    if process.returncode:
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        raise BenchFailed(f"a process that was to {verb} session {session} failed: {last}")
    return int(said) / 1024
