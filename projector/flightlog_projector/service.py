"""The projector as a service: starts, follows every stream, and drains when told to stop."""

import asyncio
import contextlib
import logging
import signal
import time
from typing import Any

from flightlog.bus.nats_bus import NatsBus, connect_bus
from flightlog.bus.notices import Notices
from flightlog.cache.store import Store, StoreUnavailable
from flightlog.errors import FlightlogError
from flightlog.snapshot import Projection
from flightlog_projector import web
from flightlog_projector.follower import Follower
from flightlog_projector.keeper import Keeper
from flightlog_projector.metrics import Metrics
from flightlog_projector.progress import Progress
from flightlog_projector.projector import Projector
from flightlog_projector.settings import Settings
from flightlog_projector.walk import Walk

DURABLE = "projector"  # a stable name: autoscalers and dashboards read this consumer's lag
PING_TIMEOUT = 2.0  # seconds

_log = logging.getLogger("flightlog.projector")


class Service:
    """One replica."""

    def __init__(
        self, bus: NatsBus, store: Store, settings: Settings, projections: list[Projection[Any]]
    ) -> None:
        self._bus, self._store, self._settings = bus, store, settings
        self.metrics = Metrics()
        self._gate = asyncio.Semaphore(settings.folds)
        self._projections = projections
        self.followers = [self._follower(stream) for stream in bus.layout.streams]
        self._stopping = False
        self.port = 0

    def _follower(self, stream: str) -> Follower:
        progress = Progress(self._settings.stall_timeout, time.monotonic())

        def moved() -> None:
            progress.moved(time.monotonic())

        projector = Projector(
            self._bus,
            self._store,
            metrics=self.metrics,
            projections=self._projections,
            moved=moved,
        )
        notices = Notices(self._bus, stream, DURABLE)
        keeper = Keeper(
            self._store,
            notices,
            projector,
            Walk(self._bus, stream, moved=moved),
            metrics=self.metrics,
            rate=self._settings.rebuild_rate,
        )
        return Follower(
            self._bus,
            self._store,
            notices,
            projector,
            keeper,
            gate=self._gate,
            progress=progress,
            metrics=self.metrics,
            drain_timeout=self._settings.drain_timeout,
        )

    async def run(self) -> None:
        """Follow every stream until `stop`. Raises OSError when the HTTP port is taken."""
        listener = web.listen(self._settings.http_host, self._settings.http_port)
        server = web.server(web.application(self.followers, self.metrics, self.unready))
        self.port = listener.getsockname()[1]
        _log.info("following %d streams, HTTP on port %d", len(self.followers), self.port)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            async with asyncio.TaskGroup() as group:
                for follower in self.followers:
                    group.create_task(follower.run(), name=f"follow {follower.stream}")
        finally:
            server.should_exit = True
            await serving
        left = sum(follower.left for follower in self.followers)
        _log.info("stopped; %d notices are left to the other replicas", left)

    def stop(self) -> None:
        """Take no more work; `run` returns once what is in hand is done, or the deadline passed."""
        self._stopping = True
        for follower in self.followers:
            follower.stop()

    async def unready(self) -> str | None:
        """Why this replica's catalog should not be relied on now, or None."""
        if self._stopping:
            return "stopping"
        if not self._bus.connected:
            return "no connection to NATS"
        try:
            async with asyncio.timeout(PING_TIMEOUT):
                await self._store.ping()
        except (FlightlogError, TimeoutError):
            return "Redis does not answer"
        waiting = [each.stream for each in self.followers if not each.keeper.whole]
        return f"rebuilding {', '.join(waiting)}" if waiting else None


async def serve(settings: Settings, projections: list[Projection[Any]]) -> None:
    """Connect, run until SIGTERM or SIGINT, drain, close. Raises `FlightlogError` without a bus."""
    store = Store.connect(settings.redis())
    with contextlib.suppress(StoreUnavailable):  # it may come later; a wrong password stays wrong
        await store.ping()
    bus = await connect_bus(
        settings.nats(),
        prefix=settings.subject_prefix,
        name="flightlog-projector",
    )
    try:
        service = Service(bus, store, settings, projections)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.stop)
        await service.run()
    finally:
        await bus.close()
        await store.close()
