"""Projects one session: folds its log, and writes the snapshot, then the row."""

import functools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from flightlog.bus.protocol import Bus, Page
from flightlog.cache import catalog
from flightlog.cache.catalog import Row
from flightlog.cache.place import Seen
from flightlog.cache.shelf import Shelf
from flightlog.cache.store import Store
from flightlog.defect import place
from flightlog.errors import BusUnavailable, FlightlogError, LogCorrupt
from flightlog.reading import reader
from flightlog.reading.reader import Folded, Passed
from flightlog.snapshot import SESSION, Projection, Snapshot
from flightlog.state import SessionState
from flightlog.wire import subject as names
from flightlog.writing import seal
from flightlog_projector.history import History
from flightlog_projector.metrics import Metrics

SNAPSHOT_EVENTS = 100  # a missed snapshot costs a longer tail at the next resume, nothing else
SNAPSHOT_SECONDS = 60.0
RESTING = frozenset({"suspended", "completed", "failed", "cancelled"})

_log = logging.getLogger("flightlog.projector")


@dataclass(frozen=True)
class Job:
    """A session whose row must reach stream sequence `at_least`, and its row as it was `seen`."""

    tenant: str
    session: str
    at_least: int
    seen: Seen


@dataclass(frozen=True)
class Projected:
    """What became of a session: covered up to a stream sequence, or `aside` for a reason."""

    covered: int
    wrote: bool = False
    aside: str | None = None


class Projector:
    """Turns logs into snapshots and rows. Holds no state of any session between two calls."""

    def __init__(
        self,
        bus: Bus,
        store: Store,
        *,
        metrics: Metrics,
        projections: list[Projection[Any]] | None = None,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        """`moved` is called for each page that is read: a long fold is no standstill."""
        self._bus = cast("Bus", _Watched(bus, moved))
        self._store = store
        self._metrics = metrics
        self._projections = projections or []

    async def project(self, job: Job) -> Projected:
        """Bring the row of a session up to `job.at_least` or further.

        A session that cannot be folded gets the reason into its row. Raises `BusUnavailable`,
        `StoreUnavailable` and the like when it was not the session's fault.
        """
        try:
            with self._metrics.fold_seconds.time():
                return await self._project(job)
        except LogCorrupt as exc:
            return await self._set_aside(job, str(exc))
        except FlightlogError:
            raise
        except Exception as exc:  # noqa: BLE001  one session's log must not stop the others
            return await self._set_aside(job, f"projecting it raised {place(exc)}")

    async def _project(self, job: Job) -> Projected:
        history = await self._history(job, SESSION)
        usable = _usable(history.last, job.seen.row)
        folded = await self._fold(job, SESSION, usable, history.passed)
        covered = max(folded.read_to, job.at_least)
        if folded.presence == "purged":
            await self._store.purge(job.tenant, job.session, sequence=covered)
            self._metrics.purges.inc()
            return Projected(covered, wrote=True)
        if folded.presence != "present":
            return Projected(covered)
        self._metrics.events.inc(folded.tail)
        saved_seq, saved_at = await self._snapshots(job, folded, history)
        wrote = await self._save_row(job, _row(job, folded, saved_seq, saved_at))
        return Projected(covered, wrote=wrote)

    async def _save_row(self, job: Job, row: Row) -> bool:
        saved = await self._store.save_row(row, seen=job.seen)
        self._metrics.rows.inc(saved.written)
        self._metrics.conflicts.labels("row").inc(saved.conflicts)
        return saved.written

    async def _fold(
        self,
        job: Job,
        projection: Projection[Any],
        snapshot: Snapshot | None,
        passed: Passed[Any] | None = None,
    ) -> Folded[Any]:
        where = (self._bus, job.tenant, job.session, projection)
        try:
            return await reader.fold(
                *where, snapshot=snapshot, at_least=job.at_least, passed=passed
            )
        except BusUnavailable:
            if await self._is_there(job):
                raise
        return await reader.fold(*where, snapshot=snapshot, passed=passed)

    async def _is_there(self, job: Job) -> bool:
        """Whether the message that was announced still exists, or its session was purged since."""
        stream = self._bus.layout.stream_of(job.session)
        for part in ("live", "base"):
            subject = names.log_subject(
                job.tenant, job.session, part, prefix=self._bus.layout.prefix
            )
            if await self._bus.after(stream, subject, job.at_least - 1, leader=True) is not None:
                return True
        return False

    async def _snapshots(
        self, job: Job, folded: Folded[SessionState], history: History
    ) -> tuple[int, float]:
        """Write the snapshots that are due; the seq and time of the last one, for the row."""
        now = time.time()
        row = job.seen.row
        last = (row.snapshot_seq, row.snapshot_at) if row else (0, now)
        resting = folded.state.status in RESTING
        if not snapshot_due(tail=folded.tail, age=now - last[1], resting=resting):
            return last
        if not await history.save(folded):
            return last
        await history.keep()
        for projection in self._projections:
            await self._project_for_user(job, projection)
        return folded.seq, now

    async def _project_for_user(self, job: Job, projection: Projection[Any]) -> None:
        """A user's projection that raises costs its own snapshot, and nothing else."""
        name = projection.name
        try:
            history = await self._history(job, projection)
            await history.save(await self._fold(job, projection, history.last))
        except FlightlogError:
            raise
        except Exception as exc:  # noqa: BLE001  users' code may raise anything
            _log.warning("projection %s of session %s raised %s", name, job.session, place(exc))
            self._metrics.projection_failures.labels(name).inc()

    async def _history(self, job: Job, projection: Projection[Any]) -> History:
        where = (job.tenant, job.session, projection.name, projection.version)
        shelf = Shelf(self._store, *where)
        sealed = functools.partial(self._is_sealed, job)
        held = await shelf.load()
        return History(shelf, projection, held, sealed=sealed, metrics=self._metrics)

    async def _is_sealed(self, job: Job) -> bool:
        return (await seal.look(self._bus, job.tenant, job.session)).standing == "sealed"

    async def _set_aside(self, job: Job, reason: str) -> Projected:
        _log.warning("session %s is set aside: %s", job.session, reason)
        row = catalog.set_aside(
            job.seen.row,
            tenant=job.tenant,
            session=job.session,
            read_to=job.at_least,
            reason=reason,
        )
        return Projected(job.at_least, wrote=await self._save_row(job, row), aside=reason)


class _Watched:
    """A bus that tells of each page it reads."""

    def __init__(self, bus: Bus, moved: Callable[[], None]) -> None:
        self._bus, self._moved = bus, moved

    async def page(self, stream: str, subject: str, start: int, *, most: int | None = None) -> Page:
        found = await self._bus.page(stream, subject, start, most=most)
        self._moved()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)


def snapshot_due(*, tail: int, age: float, resting: bool) -> bool:
    """Whether a fold of `tail` events, `age` seconds after the last snapshot, writes one."""
    if tail == 0:
        return False
    return resting or tail >= SNAPSHOT_EVENTS or age >= SNAPSHOT_SECONDS


def _usable(snapshot: Snapshot | None, row: Row | None) -> Snapshot | None:
    """A snapshot that the row covers: only then does the row know of every stray before it."""
    if snapshot is None or row is None or row.read_to < snapshot.read_to:
        return None
    return snapshot


def _row(job: Job, folded: Folded[SessionState], snapshot_seq: int, snapshot_at: float) -> Row:
    strays, before = len(folded.strays), job.seen.row
    if folded.used is not None and before is not None:
        new = sum(stray.sequence > before.read_to for stray in folded.strays)
        strays = before.strays + new
    return catalog.row_of(
        folded.state,
        tenant=job.tenant,
        session=job.session,
        sequence=folded.sequence,
        read_to=folded.read_to,
        strays=strays,
        snapshot_seq=snapshot_seq,
        snapshot_at=round(snapshot_at, 3),
    )
