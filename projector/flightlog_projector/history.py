"""The snapshots of one projection of a session: the last one, and those that are kept for good.

Those that are kept lie so near to each other that a state at any seq is one page of the log away.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from flightlog.cache.shelf import Held, Shelf
from flightlog.reading import chain, reader
from flightlog.reading.reader import Folded
from flightlog.snapshot import Projection, Snapshot
from flightlog_projector.metrics import Metrics

EVERY = 500  # events between two that are kept, where pages and folds are not longer than that
HEAD_SHARE = 128  # bytes of heads for an event: a larger head is kept less often
HEAD_BYTES = 16 << 20  # a larger one holds up Redis' one thread for longer than a replay takes


Sealed = Callable[[], Awaitable[bool]]


class History:
    """Writes snapshots of a fold while it goes on, over what was `stored`.

    Those of a fold that begins again from the first event replace all that were kept. `sealed`
    tells whether a base whose seal was not read yet has one: without it there is no session.
    """

    def __init__(
        self,
        shelf: Shelf,
        projection: Projection[Any],
        stored: Held,
        *,
        sealed: Sealed,
        metrics: Metrics,
    ) -> None:
        self._shelf, self._projection, self._metrics = shelf, projection, metrics
        self._sealed = sealed
        self._held = stored
        self._used: Snapshot | None = None
        self._seq = 0
        self._due = False
        self._lost = False  # to another replica, or nothing to write for

    async def passed(self, folded: Folded[Any]) -> None:
        """Keep a snapshot here if the last one that was kept is far enough away."""
        again = self._seq > 0 and (folded.used is not self._used or folded.seq < self._seq)
        self._used, self._seq = folded.used, folded.seq
        if again:
            self._forget()
        if self._lost or not spaced(self._at, folded.seq):
            return
        if folded.presence == "unsealed" and not await self._sealed():
            self._lost = True
            return
        await self.save(folded)
        await self.keep()

    async def save(self, folded: Folded[Any]) -> bool:
        """Store a snapshot of the fold; true when this one is there now."""
        if not self._follows(folded):
            self._forget()
        held = self.last
        if held is not None and held.sequence >= folded.sequence:
            return held.sequence == folded.sequence
        new, name = reader.snapshot_of(self._projection, folded), self._projection.name
        if len(new.cut.state) > HEAD_BYTES:
            self._metrics.snapshots_skipped.labels(name).inc()
            return False
        before, saved = self._at, await self._shelf.save(new, self._held)
        self._metrics.snapshots.labels(name).inc(saved is not None)
        self._metrics.conflicts.labels("snapshot").inc(saved is None)
        if saved is None:
            self._lost = True
            return False
        self._held = saved
        self._due = spaced(before, folded.seq, head=len(saved.value or b""))
        return True

    async def keep(self) -> None:
        """Keep the snapshot that was saved last, if it is time."""
        if self._due and (kept := await self._shelf.keep(self._held)):
            self._held = kept
        self._due = False

    @property
    def last(self) -> Snapshot | None:
        """The snapshot that is there."""
        return self._held.snapshot

    @property
    def _at(self) -> int:
        return self.last.seq if self.last else 0

    def _forget(self) -> None:
        """What is there is worth no more than garbage: the next one replaces all of it."""
        self._held = Held(self._held.value, None, self._held.adding)

    def _follows(self, folded: Folded[Any]) -> bool:
        """Whether the last snapshot and the fold are of one chain."""
        held = self.last
        upto = min(self._at, folded.seq)
        return held is None or chain.agree(held.writers, folded.writers, upto=upto)


def spaced(before: int, seq: int, *, head: int = 0) -> bool:
    """Whether a snapshot at `seq` is to be kept, the one before it being that at `before`.

    It is, if there is a multiple of `EVERY` between them, or of more where a head is large.
    """
    every = EVERY
    while head > HEAD_SHARE * every:
        every *= 2
    return before // every != seq // every
