"""Keeps one stream's part of the catalog whole: notices what Redis lost, and projects it again."""

import asyncio
import contextlib
import logging
import time
import uuid
from collections import deque

from flightlog.bus.notices import Notices, Standing
from flightlog.cache.floor import REBUILD_LIFE, Floor, Floors
from flightlog.cache.store import Store
from flightlog.errors import FlightlogError
from flightlog_projector.backlog import Key
from flightlog_projector.metrics import Metrics
from flightlog_projector.projector import Job, Projected, Projector
from flightlog_projector.walk import Walk

FLOOR_LAG = 5.0  # seconds that the floor stays behind the acks, so that a restart looks back as far
AT_ONCE = 4  # folds of a rebuild; live sessions come first
CHUNK = 100  # sessions looked up at once, and signed for
ASIDE_EVERY = 60.0  # seconds between two attempts at the sessions that were set aside

_log = logging.getLogger("flightlog.projector")


class Keeper:
    """Compares what Redis remembers of a stream and this replica with what it last saw there."""

    def __init__(
        self,
        store: Store,
        notices: Notices,
        projector: Projector,
        walk: Walk,
        *,
        metrics: Metrics,
        rate: float,
    ) -> None:
        """`rate` is how many sessions a rebuild may project in a second."""
        self.stream = notices.stream
        self._store, self._notices, self._projector, self._walk = store, notices, projector, walk
        self._metrics = metrics
        self._floors = Floors(store, notices.stream, replica=uuid.uuid4().hex)
        self._last: Floor | None = None
        self._owed: int | None = None
        self._suspicions = 0
        self._rate = rate
        self._echo: bytes | None = None
        self._signing = asyncio.Lock()
        self._signed = 0
        self._acked: deque[tuple[float, int]] = deque()
        self._asides_due = 0.0

    @property
    def whole(self) -> bool:
        """Whether everything below the floor is in the catalog, as far as this replica can tell."""
        return self._last is not None and self._owed is None

    async def sign(self) -> bool:
        """Leave this replica's next echo in Redis; false when the last one is not there any more.

        Done after rows were written and before their notices are acknowledged: rows that Redis
        lost take the echo with them.
        """
        async with self._signing:
            self._signed += 1
            new = str(self._signed).encode()
            if await self._floors.echo(new, expected=self._echo):
                self._echo = new
                return True
            self._echo = await self._floors.echoed()
            self._owe(await self._floors.floor())
            return False

    async def book(self, job: Job, projected: Projected) -> None:
        """Keep the list of sessions that are set aside."""
        was_aside = job.seen.row is not None and job.seen.row.error is not None
        if projected.aside is not None:
            await self._floors.set_aside(job.tenant, job.session)
        elif was_aside:
            await self._floors.take_back(job.tenant, job.session)

    async def tick(self, standing: Standing) -> None:
        """Look once; make whole what is owed. Raises `BusUnavailable`, `StoreUnavailable`."""
        floor = await self._floors.floor()
        async with self._signing:
            echoed = await self._floors.echoed()
            lost, self._echo = echoed != self._echo, echoed
        if floor and self._last is None and floor.sequence > await self._walk.last_sequence():
            floor = None  # the stream was made anew
        if lost or lowers(self._last, floor):
            self._owe(floor)
        self._show()
        if self._owed is None:
            await self._raise(floor, standing)
            await self._try_asides()
        elif await self._floors.claim():
            await self._make_whole(floor)
        self._show()

    async def _make_whole(self, floor: Floor | None) -> None:
        renewal = asyncio.create_task(self._renew_claim())
        try:
            suspicions, owed = self._suspicions, self._owed or 0
            # asked only now: all that was acknowledged before the loss was delivered before it
            top = (await self._notices.info()).delivered
            _log.info("stream %s: projecting again from %d to %d", self.stream, owed, top)
            if not await self._cover(owed, top):
                return
            done = await self._settle(floor, top)
            if done is not None and suspicions == self._suspicions:
                self._last, self._owed = done, None
                _log.info("stream %s: the catalog is whole up to %d", self.stream, done.sequence)
        finally:
            renewal.cancel()
            with contextlib.suppress(FlightlogError):
                await self._floors.release()

    async def _renew_claim(self) -> None:
        """Keep the claim through long folds; a claim that is gone ends the rebuild in `_cover`."""
        while True:
            await asyncio.sleep(REBUILD_LIFE / 4)
            with contextlib.suppress(FlightlogError):
                await self._floors.keep()

    async def _settle(self, floor: Floor | None, top: int) -> Floor | None:
        if floor is None:
            created = Floor(uuid.uuid4().hex, top)
            return created if await self._floors.create(created) else None
        raised = Floor(floor.generation, max(floor.sequence, top))
        return raised if await self._floors.raise_to(raised, expected=floor) else None

    async def _cover(self, above: int, top: int) -> bool:
        """Project what the catalog lacks, newest first; false when Redis lost things meanwhile."""
        if not await self.sign():
            return False
        async for sessions in self._walk.windows(above, top):
            for start in range(0, len(sessions), CHUNK):
                jobs = await self._lacking(sessions[start : start + CHUNK])
                for first in range(0, len(jobs), AT_ONCE):
                    await self._project(jobs[first : first + AT_ONCE])
                if not (await self.sign() and await self._floors.keep()):
                    return False
        return True

    async def _lacking(self, sessions: list[tuple[Key, int]]) -> list[Job]:
        jobs: list[Job] = []
        for tenant in {tenant for (tenant, _), _ in sessions}:
            mine = [(key[1], highest) for key, highest in sessions if key[0] == tenant]
            seen = await self._store.look(tenant, [session for session, _ in mine])
            jobs += [
                Job(tenant, session, highest, found)
                for (session, highest), found in zip(mine, seen, strict=True)
                if found.covers < highest
            ]
        return jobs

    async def _project(self, jobs: list[Job]) -> None:
        began = time.monotonic()
        found = await asyncio.gather(*map(self._projector.project, jobs))
        for job, projected in zip(jobs, found, strict=True):
            await self.book(job, projected)
        self._metrics.rebuilt.labels(self.stream).inc(len(jobs))
        await asyncio.sleep(max(0.0, len(jobs) / self._rate - (time.monotonic() - began)))

    async def _raise(self, floor: Floor | None, standing: Standing) -> None:
        """Raise the floor to where the acks were a while ago, unless somebody is rebuilding."""
        now = time.monotonic()
        self._last = floor
        self._acked.append((now, standing.ack_floor))
        reached = 0
        while self._acked and now - self._acked[0][0] >= FLOOR_LAG:
            reached = self._acked.popleft()[1]
        if floor is None or reached <= floor.sequence or await self._floors.rebuilding():
            return
        raised = Floor(floor.generation, reached)
        if await self._floors.raise_to(raised, expected=floor):
            self._last = raised
            self._metrics.floor.labels(self.stream).set(reached)

    async def _try_asides(self) -> None:
        """Project the sessions that were set aside once more: the code or the log may be mended."""
        now = time.monotonic()
        if now < self._asides_due:
            return
        self._asides_due = now + ASIDE_EVERY
        asides = await self._floors.aside()
        for tenant, session in asides:
            (seen,) = await self._store.look(tenant, [session])
            if seen.row is None or seen.row.error is None:
                await self._floors.take_back(tenant, session)
            else:
                job = Job(tenant, session, seen.covers, seen)
                await self.book(job, await self._projector.project(job))
        self._metrics.set_aside.labels(self.stream).set(len(await self._floors.aside()))

    def _show(self) -> None:
        self._metrics.rebuilding.labels(self.stream).set(not self.whole)

    def _owe(self, floor: Floor | None) -> None:
        start = floor.sequence if floor else 0
        self._owed = start if self._owed is None else min(self._owed, start)
        self._suspicions += 1


def lowers(last: Floor | None, floor: Floor | None) -> bool:
    """Whether a floor is neither the one last seen nor that one raised: writes may be lost."""
    if last is None or floor is None:
        return True
    return floor.generation != last.generation or floor.sequence < last.sequence
