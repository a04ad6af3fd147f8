"""A projector replica in this process or one of its own, and logs written by hand before it."""

import asyncio
import contextlib
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis.asyncio as redis

from flightlog import event as events
from flightlog.bus.answer import Acked
from flightlog.bus.nats_bus import NatsBus, connect_bus
from flightlog.bus.protocol import Outgoing
from flightlog.cache import catalog
from flightlog.cache.catalog import Filter, Row
from flightlog.cache.store import Store
from flightlog.event import Control, Event
from flightlog.snapshot import Projection
from flightlog.wire import subject as names
from flightlog_projector.service import Service
from flightlog_projector.settings import Settings
from flightlog_recorder.embedded import Server

TENANT = "acme"


async def until(condition: Callable[[], Awaitable[Any]], *, timeout: float = 30.0) -> Any:
    """Wait until the condition gives something true, and return that."""
    deadline = time.monotonic() + timeout
    while True:
        if found := await condition():
            return found
        assert time.monotonic() < deadline, f"not within {timeout} s"
        await asyncio.sleep(0.02)


@dataclass
class World:
    """A bus and a store, for tests to write logs to and read rows from."""

    bus: NatsBus
    store: Store
    nats: Server
    redis: Server
    last: dict[str, int] = field(default_factory=dict[str, int])

    async def put(self, session: str, *stored: Event | Control | bytes, part: str = "live") -> int:
        """Store messages on a session's subject, whatever they are; the last stream sequence."""
        subject = names.log_subject(TENANT, session, part)
        for start in range(0, len(stored), 200):
            messages = [_outgoing(each) for each in stored[start : start + 200]]
            answer = await self.bus.append(
                subject, messages, expected=self.last.get(subject, 0), timeout=5
            )
            assert isinstance(answer, Acked), answer
            self.last[subject] = answer.sequence
        return self.last.get(subject, 0)

    async def row(self, session: str) -> Row | None:
        return await self.store.row(TENANT, session)

    async def reaches(self, session: str, seq: int, *, timeout: float = 30.0) -> Row:
        """Wait until the session's row is at `seq`."""

        async def there() -> Row | None:
            with contextlib.suppress(Exception):
                row = await self.row(session)
                return row if row is not None and row.seq >= seq else None
            return None

        found: Row = await until(there, timeout=timeout)
        return found

    async def flush(self) -> None:
        """Empty Redis."""
        async with redis.Redis.from_url(self.redis.url) as client:
            await client.flushall()

    async def listed(self, wanted: Filter = catalog.ANY) -> set[str]:
        return {row.session for row in (await self.store.rows(TENANT, wanted, limit=10_000)).rows}


def _outgoing(stored: Event | Control | bytes) -> Outgoing:
    body = stored if isinstance(stored, bytes) else stored.body
    try:
        return Outgoing(body, {"Flightlog-Type": events.decode(body).type})
    except Exception:  # noqa: BLE001  garbage is stored as it is
        return Outgoing(body, {})


@dataclass
class Replica:
    """One replica in this process."""

    service: Service
    task: "asyncio.Task[None]"
    bus: NatsBus
    store: Store

    async def ready(self) -> None:
        async def is_ready() -> bool:
            return await self.service.unready() is None

        await until(is_ready)

    def value(self, name: str, **labels: str) -> float:
        """A metric's value now."""
        found = self.service.metrics.registry.get_sample_value(
            f"flightlog_projector_{name}", labels
        )
        return found or 0.0

    async def stop(self) -> None:
        self.service.stop()
        await self.task
        await self.close()

    async def kill(self) -> None:
        """Vanish in the middle: nothing is finished, nothing acknowledged."""
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        await self.close()

    async def close(self) -> None:
        await self.bus.close()
        await self.store.close()


StartReplica = Callable[..., Awaitable[Replica]]


@pytest.fixture
async def world(nats_server: Server, redis_server: Server) -> AsyncIterator[World]:
    """Servers of this test alone: they are killed, emptied and set back."""
    bus, store = await connect_bus(nats_server.url), Store.connect(redis_server.url)
    yield World(bus, store, nats_server, redis_server)
    await bus.close()
    await store.close()


@pytest.fixture
async def start_replica(world: World) -> AsyncIterator[StartReplica]:
    """Start replicas in this process: `await start_replica(projections=[...], stall_timeout=5)`."""
    started: list[Replica] = []

    async def start(*, projections: list[Projection[Any]] | None = None, **options: Any) -> Replica:
        settings = Settings(http_port=0, **options)
        bus = await connect_bus(world.nats.url)
        store = Store.connect(world.redis.url)
        service = Service(bus, store, settings, projections or [])
        replica = Replica(service, asyncio.create_task(service.run()), bus, store)
        started.append(replica)
        return replica

    yield start
    for replica in started:
        if not replica.task.done():
            await replica.kill()
        await replica.close()


@dataclass
class Child:
    """One replica as a process of its own."""

    process: asyncio.subprocess.Process
    port: int
    said: list[str]

    async def page(self, path: str) -> tuple[int, str]:
        return await page(self.port, path)


async def page(port: int, path: str) -> tuple[int, str]:
    """Status and text of one of the projector's pages."""

    def get() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, exc.read().decode()

    return await asyncio.to_thread(get)


def environment(nats: Server | str, redis: Server | str, **more: str) -> dict[str, str]:
    urls = [each if isinstance(each, str) else each.url for each in (nats, redis)]
    return os.environ | {
        "FLIGHTLOG_NATS_URL": urls[0],
        "FLIGHTLOG_REDIS_URL": urls[1],
        "FLIGHTLOG_HTTP_PORT": "0",
        **more,
    }


async def spawn(env: dict[str, str], *, module: str = "flightlog_projector") -> Child:
    """Start `python -m` a service and wait until it listens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, env=env, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    said: list[str] = []
    while line := (await process.stderr.readline()).decode():
        said.append(line)
        if "HTTP on port" in line:
            return Child(process, int(line.rsplit(" ", 1)[1]), said)
    raise AssertionError("".join(said))
