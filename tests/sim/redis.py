"""The snapshot store as a resume sees it: fast, slow, empty, older than it was, or garbage."""

import asyncio
from random import Random

from flightlog import snapshot as snapshots
from flightlog.cache import piece
from flightlog.errors import FlightlogError
from flightlog.snapshot import Snapshot


class Snapshots:
    """Every snapshot ever saved; which one a reader gets is drawn."""

    def __init__(self, rng: Random, *, trouble: float) -> None:
        self._rng, self._trouble = rng, trouble
        self._saved: dict[str, list[bytes]] = {}
        self._pieces: dict[str, bytes] = {}

    def save(self, session: str, snapshot: Snapshot) -> None:
        """Keep a snapshot; an older one may still be what is read."""
        self._saved.setdefault(session, []).append(snapshots.write(snapshot))
        pieces = snapshot.cut.pieces
        self._pieces.update({name: piece.stored(name, pieces[name]) for name in pieces})

    async def snapshot(self, tenant: str, session: str, name: str, version: int) -> bytes | None:
        """The newest, mostly."""
        del tenant, name, version
        saved = self._saved.get(session)
        if self._rng.random() < self._trouble:
            return await self._awry(saved)
        return saved[-1] if saved else None

    async def pieces(
        self, tenant: str, session: str, name: str, version: int, pieces: list[str]
    ) -> list[bytes | None]:
        """All of them, or in trouble a few."""
        del tenant, session, name, version
        found = [self._pieces.get(each) for each in pieces]
        if self._rng.random() < self._trouble:
            return [each if self._rng.random() < 0.5 else None for each in found]
        return found

    async def _awry(self, saved: list[bytes] | None) -> bytes | None:
        match self._rng.randrange(4):
            case 0:
                raise FlightlogError("no use of Redis")
            case 1:
                await asyncio.sleep(1.0)
                return None
            case 2 if saved:
                return saved[-1][: self._rng.randrange(len(saved[-1]))]
            case _ if saved:
                return self._rng.choice(saved)
            case _:
                return b"garbage"

    async def row(self, tenant: str, session: str) -> None:
        """No catalog here."""
        del tenant, session

    async def close(self) -> None:
        """Nothing is held."""
