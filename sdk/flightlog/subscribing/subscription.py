"""A subscription: live events as they come, at least once, shared by all who take its name."""

import asyncio
import contextlib
import functools
import inspect
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any, Self

from msgspec import Struct

from flightlog import clock
from flightlog.bus.nats_bus import NatsBus
from flightlog.bus.notices import Notice, Start
from flightlog.bus.protocol import Connection
from flightlog.errors import FlightlogError, InvalidEvent, NotPermitted
from flightlog.event import Event
from flightlog.running import thread
from flightlog.subscribing.delivery import Delivery
from flightlog.subscribing.source import KEEP_EVERY, Source, Whose, sources
from flightlog.wire import subject as names

ATTEMPTS = 12  # deliveries; with pauses that double from 1 s the last one comes after half an hour
AHEAD = 32  # events of a stream in hand at once: what a slow process keeps from others
PAUSE = 0.5  # seconds after NATS did not serve
WARN_EVERY = 5.0  # seconds between two warnings
_LOOK = 5.0  # seconds for one look at a quiet stream
_UNREADABLE = "it is no event of the wire contract"

Handle = Callable[[Delivery], Any]
Where = Callable[[Event], bool]

_log = logging.getLogger("flightlog.subscriber")


class Interest(Struct, frozen=True, kw_only=True):
    """What a subscriber asks for; `Log.subscribe` says what each means."""

    name: str
    types: Collection[str] | None = None
    where: Where | None = None
    start: Start = "new"
    attempts: int | None = ATTEMPTS
    ahead: int = AHEAD

    def check(self) -> None:
        """Raise `InvalidName`, or `FlightlogError` for a start that is none."""
        names.token("subscriber name", self.name)
        if isinstance(self.start, datetime) and self.start.tzinfo is None:
            raise FlightlogError("a subscription's start is a time with its zone")
        if not isinstance(self.start, datetime) and self.start not in ("new", "all"):
            raise FlightlogError('a subscription\'s start is "new", "all" or a datetime')


class Subscription:
    """Made by `Log.subscribe`: iterate over it, or `run` a function on what comes.

    As a block it is there from its beginning on: what is stored after that is delivered. While the
    broker is away it waits, and says so in warnings. Its connection is its own, so that it slows
    nobody. What was brought and not handed out when it ends goes to others at once.
    """

    def __init__(self, bus: Connection, tenant: str, interest: Interest) -> None:
        interest.check()
        self._home, self._interest = bus, interest
        asked = {interest.types} if isinstance(interest.types, str) else interest.types
        self._whose = Whose(tenant, interest.name, None if asked is None else frozenset(asked))
        self._bus: Connection | None = None
        self._arrived: asyncio.Queue[Delivery | Exception | None] = asyncio.Queue(interest.ahead)
        self._sources: list[Source] = []
        self._pumps: list[asyncio.Task[None]] = []
        self._keeping: asyncio.Task[None] | None = None
        self._stopped = False
        self._warned_at = -WARN_EVERY

    async def __aenter__(self) -> Self:
        bus, interest = await self._home.twin(echo=True), self._interest
        if not isinstance(bus, NatsBus):
            raise TypeError(type(bus).__name__)
        self._bus = bus
        brought = sources(bus, self._whose, start=interest.start, ahead=interest.ahead)
        try:
            await asyncio.gather(*(source.notices.open() for source in brought))
        except BaseException:
            await bus.close()
            raise
        self._sources = brought
        self._pumps = [asyncio.create_task(self._pump(source)) for source in brought]
        self._keeping = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.stop()
            await _cancelled(self._keeping)
        finally:
            if self._bus is not None:
                await self._bus.close()

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        async with self._entered():
            while (delivery := await self._next()) is not None:
                yield delivery
                del delivery  # while we wait for the next one, only its receiver holds it

    async def run(self, handle: Handle, *, parallel: int = 1) -> None:
        """Call `handle(delivery)` for each, up to `parallel` at once; sync functions in threads.

        What it returns from is acknowledged, if it did not settle it; what it raises from comes
        again after a pause that doubles, and is dead after the subscription's attempts. Goes on
        until `stop`, which lets what runs end, or a cancellation, after which it comes again.
        """
        async with self._entered():
            await together([self._work(handle) for _ in range(parallel)])

    async def stop(self) -> None:
        """Take no more: iterations and `run` end with what they have in hand. Idempotent."""
        self._stopped = True
        await _cancelled(*self._pumps)
        await asyncio.gather(*(source.stop() for source in self._sources))
        while not self._arrived.empty():
            if isinstance(left := self._arrived.get_nowait(), Delivery):
                await left.retry()
        self._arrived.put_nowait(None)

    def _entered(self) -> AbstractAsyncContextManager[Any]:
        return self if self._bus is None else contextlib.nullcontext()

    async def _next(self) -> Delivery | None:
        """The next one, or None at the end, for everyone who asks."""
        match await self._arrived.get():
            case Delivery() as delivery:
                return delivery
            case None:
                self._arrived.put_nowait(None)
                return None
            case error:
                raise error

    async def _work(self, handle: Handle) -> None:
        while (delivery := await self._next()) is not None:
            try:
                await _call(handle, delivery)
            except Exception as exc:  # noqa: BLE001  users' code may raise anything
                await delivery.fail(type(exc).__name__)
            else:
                await delivery.ack()

    async def _pump(self, source: Source) -> None:
        """Bring what one stream has; whatever else goes wrong is raised where it is waited for."""
        try:
            while not self._stopped:
                async with self._hindrance(source):
                    await self._bring(source, await source.take(_LOOK))
        except Exception as exc:  # noqa: BLE001  a dead pump would be a deaf subscriber
            await self._arrived.put(exc)

    async def _bring(self, source: Source, notices: Sequence[Notice]) -> None:
        left = list(notices)
        try:
            opened = await asyncio.gather(*(self._open(source, each) for each in notices))
            for notice, event in zip(notices, opened, strict=True):
                if event is not None:
                    found = Delivery(event, notice, source, self._interest.attempts)
                    await self._arrived.put(found)
                left.pop(0)
        finally:
            if left:
                with contextlib.suppress(FlightlogError):
                    await source.give_back(left)

    async def _open(self, source: Source, notice: Notice) -> Event | None:
        """The event to be delivered; what is none, or not wanted, is settled here."""
        attempts, where = self._interest.attempts, self._interest.where
        try:
            event = await source.event(notice)
        except InvalidEvent:
            await source.bury(notice, None, _UNREADABLE)
            return None
        if event is None or (where is not None and not where(event)):
            await source.ack(notice)
            return None
        if attempts is not None and notice.delivered > attempts:
            await source.bury(notice, event, f"not settled in {attempts} deliveries")
            return None
        return event

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(KEEP_EVERY)
            for source in self._sources:
                with contextlib.suppress(FlightlogError):
                    await source.keep()

    @asynccontextmanager
    async def _hindrance(self, source: Source) -> AsyncGenerator[None]:
        """NATS that does not serve is waited for, and said to be away."""
        try:
            yield
        except NotPermitted:
            raise
        except FlightlogError as exc:
            now = clock.elapsed()
            if now - self._warned_at >= WARN_EVERY:
                self._warned_at = now
                name, stream = self._interest.name, source.notices.stream
                _log.warning("subscriber %s waits for stream %s: %s", name, stream, exc)
            await asyncio.sleep(PAUSE)


async def together(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all; the first that fails ends the others, and its error is raised as it is."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        await _cancelled(*tasks)


async def _call(handle: Handle, delivery: Delivery) -> None:
    if inspect.iscoroutinefunction(handle):
        await handle(delivery)
        return
    found = await thread.run(functools.partial(handle, delivery), {})
    if inspect.isawaitable(found):
        await found


async def _cancelled(*tasks: "asyncio.Task[None] | None") -> None:
    """Cancel them and wait until they are gone."""
    alive = [task for task in tasks if task is not None and not task.done()]
    for task in alive:
        task.cancel()
    if alive:
        await asyncio.wait(alive)
