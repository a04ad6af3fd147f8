"""Brokers killed again and again under 20 writers, with a projector that must stay awake.

A pull consumer is known to fall silent after a broker's restart, and a writer to wait for an ack
that nobody owes it any more: after each kill every session must get on, in the log and in Redis.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from flightlog import Log, StoreUnavailable, connect
from flightlog.bus import nats_bus
from flightlog.bus.nats_bus import NatsBus, connect_bare
from flightlog_recorder.embedded import Server
from flightlog_recorder.embedded.child import Child
from tests.cluster import Cluster
from tests.scripted import TENANT, until
from tests.system.load import Load, acks_of_each, restart

WRITERS = 20
WIDTHS = (1, 1, 3, 12)  # appends at a time: singles and batches
BETWEEN = 3  # acks of every writer between two kills
SECONDS = 60.0  # within which every session must have got on after a kill


@dataclass
class Scene:
    """The writers at work, and what Redis knows of them."""

    log: Log
    loads: list[Load]

    async def gets_on(self) -> None:
        """Every writer gets acks again, and the projector sees what they wrote."""
        await acks_of_each(self.loads, BETWEEN, timeout=SECONDS)
        await self.projected()

    async def projected(self) -> None:
        """Wait until the rows have what was acked by now."""
        wanted = {load.session.id: max(load.acked) for load in self.loads}
        await until(lambda: self._covers(wanted), timeout=SECONDS)

    async def _covers(self, wanted: dict[str, int]) -> bool:
        assert self.log.store is not None
        with contextlib.suppress(StoreUnavailable):
            seen = await self.log.store.look(TENANT, list(wanted))
            rows = {each.row.session: each.row.seq for each in seen if each.row is not None}
            return all(rows.get(session, 0) >= seq for session, seq in wanted.items())
        return False

    async def check(self) -> None:
        """Every log holds what was acked, and nothing else; every row agrees with its log."""
        for load in self.loads:
            await load.check(self.log)
        await self.projected()


@asynccontextmanager
async def scene(nats: str, redis: str, *, writers: int = WRITERS) -> AsyncGenerator[Scene]:
    """Writers at work until the block is left; then all is checked. Two share a connection."""
    async with AsyncExitStack() as stack:
        logs = [
            await stack.enter_async_context(connect(nats=nats, redis=redis, tenant=TENANT))
            for _ in range(writers // 2)
        ]
        opened = [log.session() for log in logs for _ in range(2)]
        loads = [Load(await stack.enter_async_context(each)) for each in opened]
        running = [
            asyncio.create_task(load.run(width=WIDTHS[n % len(WIDTHS)]))
            for n, load in enumerate(loads)
        ]
        yield (made := Scene(logs[0], loads))
        for load in loads:
            load.stopped = True
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*running)
        await made.check()


@pytest.fixture
def project(redis_url: str) -> Iterator["Projectors"]:
    """Start projectors in processes of their own, on the shared Redis."""
    with tempfile.TemporaryDirectory() as folder:
        projectors = Projectors(redis_url, Path(folder) / "said", [])
        yield projectors
        for child in projectors.children:
            child.kill()


@dataclass
class Projectors:
    """Projector processes; what they say goes to a file."""

    redis_url: str
    said: Path
    children: list[Child]

    def start(self, nats: str) -> Child:
        """Run `python -m flightlog_projector`."""
        environment = {
            "FLIGHTLOG_NATS_URL": nats,
            "FLIGHTLOG_REDIS_URL": self.redis_url,
            "FLIGHTLOG_HTTP_PORT": "0",
        }
        command = [sys.executable, "-m", "flightlog_projector"]
        self.children.append(Child(command, log=self.said, environment=os.environ | environment))
        return self.children[-1]

    async def drained(self, child: Child) -> None:
        """Stop it as an eviction would: nothing may be left in its hands."""
        assert child.alive, self.said.read_text()
        child.send(signal.SIGTERM)
        assert await asyncio.to_thread(child.wait, SECONDS), "it did not end"
        assert "stopped; 0 notices are left" in self.said.read_text()


async def killed_under_load(server: Server, project: Projectors, *, kills: int) -> None:
    """Kill the broker so many times under all writers and a projector."""
    async with scene(server.url, project.redis_url) as made:
        child = project.start(server.url)
        for _ in range(kills):
            await made.gets_on()
            await restart(server)
        await made.gets_on()
    await project.drained(child)


@pytest.mark.timeout(300)  # 8 times a kill, a restart, and three acks of each of 20 writers
async def test_eight_kills_of_the_broker_lose_nothing_and_leave_nobody_stuck_or_deaf(
    nats_server: Server, project: Projectors
) -> None:
    await killed_under_load(nats_server, project, kills=8)


@pytest.mark.soak
@pytest.mark.timeout(3_600)  # the same, 200 times
async def test_two_hundred_kills_of_the_broker_lose_nothing_and_leave_nobody_stuck_or_deaf(
    nats_server: Server, project: Projectors
) -> None:
    await killed_under_load(nats_server, project, kills=200)


async def leaders_killed_under_load(cluster: Cluster, project: Projectors, *, kills: int) -> None:
    """Kill the log's leader so many times; the other two nodes go on before it is back."""
    async with await connect_bare(cluster.url) as bare:
        await nats_bus.create_streams(bare, replicas=3)
        async with scene(cluster.url, project.redis_url) as made:
            child = project.start(cluster.url)
            for _ in range(kills):
                await made.gets_on()
                leader = cluster.node(await until(lambda: _leader(bare), timeout=SECONDS))
                await asyncio.to_thread(leader.kill)
                await acks_of_each(made.loads, BETWEEN, timeout=SECONDS)
                await asyncio.to_thread(cluster.bring_back, leader)
            await made.gets_on()
        await project.drained(child)


async def _leader(bus: NatsBus) -> str | None:
    stream = "FLIGHTLOG_0"
    found = await bus.api(f"STREAM.INFO.{stream}", json.dumps({}).encode())
    leader: str | None = found.get("cluster", {}).get("leader")
    return leader


@pytest.mark.timeout(300)  # three servers, elections of 4 to 9 s, and a node that catches up
async def test_a_killed_leader_loses_nothing_and_leaves_nobody_stuck_or_deaf(
    cluster: Cluster, project: Projectors
) -> None:
    await leaders_killed_under_load(cluster, project, kills=1)


@pytest.mark.soak
@pytest.mark.timeout(3_600)  # the same, 20 times
async def test_twenty_killed_leaders_lose_nothing_and_leave_nobody_stuck_or_deaf(
    cluster: Cluster, project: Projectors
) -> None:
    await leaders_killed_under_load(cluster, project, kills=20)
