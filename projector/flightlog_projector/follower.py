"""Follows one stream: notices in, rows out, then acknowledgements."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from flightlog.bus.nats_bus import NatsBus
from flightlog.bus.notices import Notice, Notices
from flightlog.cache.place import Seen
from flightlog.cache.store import Store
from flightlog.errors import FlightlogError
from flightlog.wire import subject as names
from flightlog_projector.backlog import Backlog, Key, Work
from flightlog_projector.keeper import Keeper
from flightlog_projector.metrics import Metrics
from flightlog_projector.progress import Progress
from flightlog_projector.projector import Job, Projected, Projector

FETCH = 10_000  # notices at once
LOOK = 500  # sessions looked up at once
MOST_RUNNING = 64  # folds that wait for their turn; the rest waits as notices
IDLE = 0.25  # seconds that the loop waits for notices
TICK = 1.0  # seconds between two looks at the broker's and Redis' state
WARN_EVERY = 5.0  # seconds; hundreds of folds may meet the same hindrance
PAUSE = 0.5  # seconds after NATS or Redis did not serve

_log = logging.getLogger("flightlog.projector")
Done = tuple[Job, Projected]


class Follower:
    """One stream of one replica. Any number of replicas share the stream's consumer."""

    def __init__(
        self,
        bus: NatsBus,
        store: Store,
        notices: Notices,
        projector: Projector,
        keeper: Keeper,
        *,
        gate: asyncio.Semaphore,
        progress: Progress,
        metrics: Metrics,
        drain_timeout: float,
    ) -> None:
        self._drain_timeout = drain_timeout
        self._settling = asyncio.Lock()
        self._warned_at = -WARN_EVERY
        self.stream = notices.stream
        self.opened = False  # whether the consumer is there
        self.progress, self.keeper = progress, keeper
        self._bus, self._store, self._notices, self._projector = bus, store, notices, projector
        self._gate, self._metrics = gate, metrics
        self._backlog = Backlog()
        self._running: set[asyncio.Task[None]] = set()
        self._done: list[Done] = []
        self._news = asyncio.Event()
        self._stopping, self._ended = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        """Follow the stream until `stop`, then drain; NATS and Redis may come and go."""
        while not (self.opened or self._is_over()):
            async with self._hindrance():
                await self._notices.open()
                self.opened = True
        async with asyncio.TaskGroup() as group:
            for beside in (self._settle_all(), self._watch(), self._keep()):
                group.create_task(beside)
            try:
                while not self._is_over():
                    async with self._hindrance():
                        await self._turn()
                await self._drain()
            finally:
                self._ended.set()
                self._news.set()

    def _is_over(self) -> bool:
        """Whether to stop; a cancellation counts, as nats-py's `wait_for` may swallow it (3.11)."""
        task = asyncio.current_task()
        return self._stopping.is_set() or (task is not None and task.cancelling() > 0)

    def stop(self) -> None:
        """Take no more; `run` finishes what is in hand, acknowledges it and returns."""
        self._stopping.set()

    @property
    def left(self) -> int:
        """Notices in hand that no row covers yet; the broker gives them to others."""
        return self._backlog.notices

    async def _drain(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_timeout):
                await self._finish_backlog()
        running = set(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        with contextlib.suppress(FlightlogError):
            await self._settle()
        await self._notices.close()

    async def _finish_backlog(self) -> None:
        """Fold what is in hand, sessions that rest from their last fold included."""
        while self._running or self._backlog.wait(time.monotonic()) is not None:
            if len(self._running) < MOST_RUNNING:
                async with self._hindrance():
                    await self._begin(self._backlog.take(time.monotonic(), LOOK))
            if self._running:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(self._backlog.wait(time.monotonic()) or 0.0)

    async def _turn(self) -> None:
        self.progress.turned(time.monotonic())
        notices = await self._notices.fetch(FETCH, self._patience())
        now = time.monotonic()
        if notices:
            self._metrics.notices.inc(len(notices))
            self.progress.heard(now)
            await self._take(notices, now)
        if len(self._running) < MOST_RUNNING:
            await self._begin(self._backlog.take(now, LOOK))

    def _patience(self) -> float:
        wait = self._backlog.wait(time.monotonic())
        if wait is None or len(self._running) >= MOST_RUNNING:
            return IDLE
        return min(wait, IDLE)

    async def _take(self, notices: Sequence[Notice], now: float) -> None:
        keyed: list[tuple[Key, Notice]] = []
        needless: list[Notice] = []
        for notice in notices:
            parts = names.parse_log_subject(notice.subject, prefix=self._bus.layout.prefix)
            if parts is None or is_needless(parts[2], notice.type):
                needless.append(notice)
            else:
                keyed.append(((parts[0], parts[1]), notice))
        self._backlog.add(keyed, now)
        await self._notices.ack(needless)

    async def _begin(self, works: list[Work]) -> None:
        """Start a fold for each session whose row does not cover its notices yet."""
        looked: set[Key] = set()
        try:
            for tenant in {work.key[0] for work in works}:
                mine = [work for work in works if work.key[0] == tenant]
                seen = await self._store.look(tenant, [work.key[1] for work in mine])
                for work, found in zip(mine, seen, strict=True):
                    looked.add(work.key)
                    self._start(work, found)
        finally:
            for work in works:
                if work.key not in looked:
                    self._backlog.retry(work.key, time.monotonic())

    def _start(self, work: Work, seen: Seen) -> None:
        job = Job(*work.key, work.highest, seen)
        if seen.covers >= job.at_least:
            self._finish(job, Projected(seen.covers))
            return
        task = asyncio.create_task(self._project(job), name=f"fold {job.session}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _project(self, job: Job) -> None:
        finished = False
        try:
            async with self._gate, self._hindrance(pause=0.0):
                projected = await self._projector.project(job)
                finished = True
                self._finish(job, projected)
        finally:
            if not finished:
                self._backlog.retry((job.tenant, job.session), time.monotonic())

    def _finish(self, job: Job, projected: Projected) -> None:
        self._done.append((job, projected))
        self._news.set()

    async def _settle_all(self) -> None:
        while not self._ended.is_set():
            await self._news.wait()
            self._news.clear()
            async with self._hindrance():
                await self._settle()

    async def _settle(self) -> None:
        """Acknowledge what rows cover, once Redis is seen to have kept the rows just written."""
        async with self._settling:
            done, self._done = self._done, []
            if done:
                await self._acknowledge(done)

    async def _acknowledge(self, done: list[Done]) -> None:
        settled = False
        try:
            if any(projected.wrote for _, projected in done) and not await self.keeper.sign():
                return
            for job, projected in done:
                await self.keeper.book(job, projected)
            settled = True
        finally:
            notices = self._put_back(done, settled=settled)
        await self._notices.ack(notices)
        self.progress.moved(time.monotonic())

    def _put_back(self, done: list[Done], *, settled: bool) -> list[Notice]:
        now = time.monotonic()
        covered: list[Notice] = []
        for job, projected in done:
            key = (job.tenant, job.session)
            if settled:
                covered += self._backlog.settle(key, projected.covered, now)
            else:
                self._backlog.retry(key, now)
        return covered

    async def _watch(self) -> None:
        """Ask the broker where the consumer stands; subscribe anew when it has fallen silent."""
        while not self._ended.is_set():
            async with self._hindrance():
                standing = await self._notices.info()
                self.progress.stands(standing, time.monotonic())
                self._metrics.lag.labels(self.stream).set(self.progress.pending)
                if self.progress.is_silent(time.monotonic()):
                    await self._notices.renew()
                    self.progress.heard(time.monotonic())
                    self._metrics.renewals.labels(self.stream).inc()
            await self._pause(TICK)

    async def _keep(self) -> None:
        while not self._ended.is_set():
            async with self._hindrance():
                await self.keeper.tick(self.progress.standing)
            await self._pause(TICK)

    @asynccontextmanager
    async def _hindrance(self, *, pause: float = PAUSE) -> AsyncGenerator[None]:
        """NATS or Redis that does not serve is waited for, and is no fault of this process."""
        try:
            yield
        except FlightlogError as exc:
            self._warn(exc)
            self._metrics.hindrances.labels(type(exc).__name__).inc()
            self.progress.hindered(time.monotonic())
            await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    def _warn(self, exc: FlightlogError) -> None:
        now = time.monotonic()
        if now - self._warned_at >= WARN_EVERY:
            self._warned_at = now
            _log.warning("stream %s: %s", self.stream, exc)


def is_needless(part: str, type: str) -> bool:
    """Whether a notice changes no row: an unsealed base is no session, its seal says it all."""
    return part == "base" and type not in ("", "seal", "tombstone")
