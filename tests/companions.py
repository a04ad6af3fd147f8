"""Programs that run beside a test, in its own process: a projector, a subscriber."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from flightlog import Log
from flightlog.bus.nats_bus import connect_bus
from flightlog.cache.store import Store
from flightlog.subscribing.delivery import Delivery
from flightlog_projector.service import Service
from flightlog_projector.settings import Settings
from flightlog_recorder.embedded import Servers


@asynccontextmanager
async def seen_by(log: Log, name: str) -> AsyncGenerator[list[tuple[str, int, str]]]:
    """Every delivery of a subscriber as (session, seq, type), while the block runs."""
    seen: list[tuple[str, int, str]] = []

    def note(delivery: Delivery) -> None:
        event = delivery.event
        seen.append((event.session_id, event.seq, event.type))

    subscription = log.subscribe(name)
    async with subscription:
        work = asyncio.create_task(subscription.run(note))
        yield seen
        await subscription.stop()
        await work


@asynccontextmanager
async def projecting(servers: Servers) -> AsyncGenerator[None]:
    """A projector, for the length of a block."""
    async with await connect_bus(servers.nats_url) as bus:
        store = Store.connect(servers.redis_url)
        service = Service(bus, store, Settings(http_port=0), [])
        running = asyncio.create_task(service.run())
        yield
        service.stop()
        await running
        await store.close()
