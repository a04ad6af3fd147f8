"""Where a benchmark runs: servers of its own, the SDK's connection and a bare one beside it."""

import os
import platform
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from flightlog import connect
from flightlog.log import Log
from flightlog_recorder.bench.floor import Floor
from flightlog_recorder.embedded import Servers, embedded

TENANT = "bench"


class Sizes(Struct, frozen=True, kw_only=True):
    """How much is measured. `rounds` is how often floor and ours take turns.

    Many short rounds beat few long ones: what else the machine does then hits both alike.
    """

    rounds: int
    singles: int
    per_caller: int
    callers: int = 32
    body: int = 1024
    long_session: int
    short_session: int = 1_000
    tail: int = 100
    opens: int
    replay: int
    small_log: int = 10_000
    large_log: int
    lengths: tuple[int, ...] = (1_000, 10_000)
    distant: int
    copied: int = 10_000
    backlog_sessions: int
    turns: int = 100
    messages: int = 10_000
    races: int = 7
    fleet: int = 10_000
    fleet_seconds: float = 30.0


QUICK = Sizes(
    rounds=3,
    singles=200,
    per_caller=10,
    long_session=5_000,
    opens=5,
    replay=5_000,
    large_log=30_000,
    distant=5_000,
    copied=1_000,
    backlog_sessions=50,
    messages=1_000,
    races=3,
    fleet=200,
    fleet_seconds=3.0,
)
USUAL = Sizes(
    rounds=21,
    singles=250,
    per_caller=20,
    long_session=100_000,
    opens=25,
    replay=20_000,
    large_log=100_000,
    distant=100_000,
    backlog_sessions=1_000,
)
LARGE_LOG = 1_000_000  # events, with --full
LENGTHS = (1_000, 10_000, 100_000)  # events, with --full


class Bed(Struct, frozen=True):
    """What every benchmark works with."""

    servers: Servers
    log: Log
    floor: Floor
    sizes: Sizes

    def environment(self) -> dict[str, str]:
        """What a process of its own needs to work beside us."""
        return {**os.environ, **self.servers.environment(), "FLIGHTLOG_TENANT": self.log.tenant}


@asynccontextmanager
async def made(sizes: Sizes) -> AsyncGenerator[Bed]:
    """Fresh servers with `sync_interval: always`, gone afterwards."""
    with embedded() as servers:
        async with connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT) as log:
            floor = await Floor.connect(servers.nats_url, log.bus.layout, TENANT)
            try:
                yield Bed(servers, log, floor, sizes)
            finally:
                await floor.close()


def machine() -> dict[str, Any]:
    """What the numbers were taken on; `load` is that of the last minute before."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }
