"""The recorder's life: connects, goes its rounds, and stops when told to."""

import asyncio
import logging
import signal

from flightlog.bus.nats_bus import NatsBus, connect_bus
from flightlog.cache.store import Store
from flightlog_recorder.service import lag, web
from flightlog_recorder.service.metrics import Metrics
from flightlog_recorder.service.rounds import Rounds
from flightlog_recorder.service.settings import Settings
from flightlog_recorder.service.stalled import Watch

_log = logging.getLogger("flightlog.recorder")


class Service:
    """One recorder."""

    def __init__(self, bus: NatsBus, store: Store | None, settings: Settings) -> None:
        self._bus, self._store, self._settings = bus, store, settings
        self.metrics = Metrics()
        self.rounds = Rounds(bus, store, settings, self.metrics)
        self.port = 0

    async def run(self) -> None:
        """Go round until `stop`. Raises OSError when the HTTP port is taken."""
        listener = web.listen(self._settings.http_host, self._settings.http_port)
        self.port = listener.getsockname()[1]
        app = web.application(
            self.metrics, why_dead=self.rounds.why_dead, why_unready=self._why_unready
        )
        server = web.server(app)
        _log.info("looking after the logs, HTTP on port %d", self.port)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        watching = [
            asyncio.create_task(lag.watch(self._bus, self.metrics)),
            asyncio.create_task(self._watch_stalled()),
        ]
        try:
            await self.rounds.run()
        finally:
            for each in watching:
                each.cancel()
            server.should_exit = True
            await serving
        _log.info("stopped; %d sessions have problems", len(self.rounds.problems))

    async def _watch_stalled(self) -> None:
        """Without a catalog nobody knows, without reading every log, which sessions run."""
        if self._store is not None:
            after = self._settings.stalled_after
            watch = Watch(self._bus, self._store, self.metrics, after=after)
            await watch.run(self.rounds.tenants)

    def stop(self) -> None:
        """Finish the session in hand; `run` then returns."""
        self.rounds.stop()

    def _why_unready(self) -> str | None:
        return None if self._bus.connected else "no connection to NATS"


async def serve(settings: Settings) -> None:
    """Connect, run until SIGTERM or SIGINT, close. Raises `FlightlogError` without a bus."""
    redis = settings.redis()
    store = Store.connect(redis) if redis else None
    bus = await connect_bus(
        settings.nats(),
        prefix=settings.subject_prefix,
        name="flightlog-recorder",
    )
    try:
        service = Service(bus, store, settings)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.stop)
        await service.run()
    finally:
        await bus.close()
        if store is not None:
            await store.close()
