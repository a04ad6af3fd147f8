"""Goes over every session of every tenant, again and again, and remembers what is wrong."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator

from flightlog.bus.nats_bus import NatsBus
from flightlog.cache.store import Store, StoreUnavailable
from flightlog.errors import BusUnavailable, FlightlogError
from flightlog.wire.layout import BLOB_STREAM
from flightlog_recorder.service.care import Care
from flightlog_recorder.service.metrics import Metrics
from flightlog_recorder.service.settings import Settings
from flightlog_recorder.verify import Verdict, ghosts, held, verdict

KINDS = ("log", "blob", "stray", "base", "snapshot", "catalog")

Key = tuple[str, str]  # tenant and session

_log = logging.getLogger("flightlog.recorder")


class Rounds:
    """One recorder's way through the streams. Memory holds a slot's ids and the problems."""

    def __init__(
        self, bus: NatsBus, store: Store | None, settings: Settings, metrics: Metrics
    ) -> None:
        self._bus, self._store, self._settings, self._metrics = bus, store, settings, metrics
        self._stopping = asyncio.Event()
        self._moved = time.monotonic()
        self.problems: dict[Key, Verdict] = {}
        self.tenants: set[str] = set()

    def stop(self) -> None:
        """Finish the session in hand, then return from `run`."""
        self._stopping.set()

    def why_dead(self) -> str | None:
        """Why this recorder should be restarted, or None."""
        idle = time.monotonic() - self._moved
        return f"no progress for {idle:.0f} s" if idle > self._settings.stall_timeout else None

    async def run(self) -> None:
        """Go round until `stop`."""
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                await self._round()
            except FlightlogError as exc:
                self._metrics.hindrances.inc()
                _log.warning("the round was cut short: %s", exc)
            else:
                self._metrics.rounds.inc()
                self._metrics.round_seconds.set(time.monotonic() - began)
            self._moved = time.monotonic()  # no session, or no bus, is no reason to be restarted
            await self._pause(self._settings.round_pause)

    async def _round(self) -> None:
        met = set[Key]()
        tenants = dict[str, Care]()
        async for tenant, session in self._paced(self._sessions()):
            care = tenants.get(tenant) or tenants.setdefault(tenant, self._care(tenant))
            self.tenants.add(tenant)
            await self._take(care, session)
            met |= {(tenant, session)} & self.problems.keys()
        async for tenant, session in self._paced(self._with_blobs()):
            care = tenants.get(tenant) or tenants.setdefault(tenant, self._care(tenant))
            await care.collect(session)
        if self._stopping.is_set():
            return
        for tenant in tenants:
            met |= await self._ghosts(tenant)
        self._forget_all_but(met)

    async def _paced(self, sessions: AsyncIterator[Key]) -> AsyncIterator[Key]:
        """The sessions one by one, with pauses that keep to the duty; none once we are to stop."""
        async for each in sessions:
            if self._stopping.is_set():
                return
            began = time.monotonic()
            yield each
            self._moved = time.monotonic()
            await self._pause((self._moved - began) * (1 / self._settings.duty - 1))

    def _care(self, tenant: str) -> Care:
        return Care(
            self._bus,
            self._store,
            tenant,
            metrics=self._metrics,
            base_age=self._settings.base_age,
        )

    async def _take(self, care: Care, session: str) -> None:
        try:
            found = await care.take(session)
        except BusUnavailable as exc:
            self._metrics.hindrances.inc()
            _log.warning("session %s waits for the next round: %s", session, exc)
            return
        self._metrics.sessions.inc()
        self._metrics.events.inc(found.events)
        self._note(care.tenant, found)
        await self._tell_catalog(care.tenant, found)

    async def _tell_catalog(self, tenant: str, found: Verdict) -> None:
        """Let listings show what is damaged; a row that is not there yet is told the next round."""
        if self._store is None:
            return
        try:
            await self._store.note_damage(tenant, found.session, found.damage)
        except FlightlogError as exc:
            _log.warning("the catalog was not told of session %s: %s", found.session, exc)

    def _note(self, tenant: str, found: Verdict) -> None:
        key = (tenant, found.session)
        if found.outcome != "problem":
            if self.problems.pop(key, None) is not None:
                _log.info("session %s: nothing is wrong any more", found.session)
        elif self.problems.get(key) != found:
            self.problems[key] = found
            for each in found.problems:
                _log.error("session %s: %s: %s", found.session, each.kind, each.what)
        self._count()

    def _forget_all_but(self, met: set[Key]) -> None:
        """Sessions that are gone have no problems."""
        self.problems = {key: found for key, found in self.problems.items() if key in met}
        self._count()

    def _count(self) -> None:
        kinds = [{each.kind for each in found.problems} for found in self.problems.values()]
        for kind in KINDS:
            self._metrics.problems.labels(kind).set(sum(kind in found for found in kinds))

    async def _ghosts(self, tenant: str) -> set[Key]:
        """Rows of the catalog whose session no stream holds."""
        found = set[Key]()
        if self._store is None:
            return found
        try:
            async for gone in ghosts(self._bus, self._store, tenant):
                for session in gone:
                    self._note(tenant, verdict.ghost(session))
                    found.add((tenant, session))
        except StoreUnavailable as exc:
            _log.warning("the catalog was not compared: %s", exc)
        return found

    async def _sessions(self) -> AsyncIterator[Key]:
        """Every session that a stream holds, slot by slot."""
        async for found in held(self._bus):
            for each in found:
                yield each

    async def _with_blobs(self) -> AsyncIterator[Key]:
        """Every session that has blobs, also one whose log was never begun."""
        prefix, seen = f"{self._bus.layout.prefix}.blob.", set[Key]()
        async for page in self._bus.subjects(BLOB_STREAM, filter=f"{prefix}>"):
            for subject in page:
                tenant, session, _ = subject.removeprefix(prefix).split(".")
                if (tenant, session) not in seen:
                    seen.add((tenant, session))
                    yield tenant, session

    async def _pause(self, delay: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), delay)
        except TimeoutError:
            return
