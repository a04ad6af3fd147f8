"""What Redis remembers of a tenant's sessions, if it answers in time; else nothing at all."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec.structs import replace

from flightlog import upcast
from flightlog.cache import shelf
from flightlog.cache.shelf import Held, Shelf
from flightlog.cache.store import Store
from flightlog.errors import FlightlogError
from flightlog.snapshot import SESSION, Snapshot

T = TypeVar("T")

_PATIENCE = 0.25  # seconds for one answer: a slower cache costs more than a replay
_log = logging.getLogger("flightlog")


class Cache:
    """Snapshots of the default projection. Without a store it knows nothing."""

    def __init__(self, store: Store | None, tenant: str) -> None:
        self._store, self._tenant = store, tenant

    async def snapshot(self, session: str) -> Snapshot | None:
        """The session's last snapshot, unless it is garbage; one of an older version is lifted."""
        name, version = SESSION.name, SESSION.version
        held = await self._held(session, version)
        if held.value is not None:
            return held.snapshot
        for older, lift in upcast.older(name, version):
            if found := (await self._held(session, older)).snapshot:
                return replace(found, cut=replace(found.cut, state=lift(found.cut.state)))
        return None

    async def head(self, session: str) -> Snapshot | None:
        """The last snapshot without its pieces: where in the log it stands."""
        return await self._found(session, lambda stored: stored.head(patience=_PATIENCE))

    async def near(self, session: str, seq: int) -> Snapshot | None:
        """The last snapshot that was kept from an event or before, not judged by the log."""
        return await self._found(session, lambda stored: stored.near(seq, patience=_PATIENCE))

    async def head_near(self, session: str, seq: int) -> Snapshot | None:
        """The same without its pieces."""
        return await self._found(session, lambda stored: stored.head_near(seq, patience=_PATIENCE))

    async def _found(
        self, session: str, ask: Callable[[Shelf], Awaitable[Snapshot | None]]
    ) -> Snapshot | None:
        stored = self._shelf(session, SESSION.version)
        return None if stored is None else await _tried(ask(stored))

    async def _held(self, session: str, version: int) -> Held:
        stored = self._shelf(session, version)
        found = None if stored is None else await _tried(stored.load(patience=_PATIENCE))
        return found or shelf.NOTHING

    def _shelf(self, session: str, version: int) -> Shelf | None:
        if self._store is None:
            return None
        return Shelf(self._store, self._tenant, session, SESSION.name, version)


async def _tried(asked: Awaitable[T]) -> T | None:
    """Slow, down or wrong is the same as knowing nothing."""
    try:
        return await asked
    except (FlightlogError, TimeoutError) as exc:
        _log.warning("going on without Redis: %s", type(exc).__name__)
        return None
