"""A session's snapshots in Redis: heads, and the pieces that they share.

All lie in one hash. A piece is there exactly if a head there speaks of it: each write compares the
head that was read, and changes head and pieces at once. What is too much for one write goes under
an *adding*: the old head behind a line that names every piece to come. Whoever finds one left
behind knows what to remove.
"""

import asyncio
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

import msgspec
from msgspec import Struct

from flightlog import snapshot as snapshots
from flightlog.cache import piece
from flightlog.cache.store import Store
from flightlog.snapshot import Snapshot

WRITE = 4 << 20  # bytes of pieces in one write: 5 ms of Redis' one thread
READ = 32  # pieces asked for at once: 2 MiB of segments of 1 KiB each


class Held(Struct, frozen=True):
    """What is stored of a projection: `value` as it is, and the snapshot with all its pieces.

    No snapshot beside a value means garbage. `adding` are pieces that may be there for a snapshot
    that was never finished.
    """

    value: bytes | None = None
    snapshot: Snapshot | None = None
    adding: tuple[str, ...] = ()


NOTHING = Held()


class _Adding(Struct, frozen=True):
    adding: tuple[str, ...]
    token: str  # as two writers may add the same


_encode = msgspec.json.Encoder().encode
_adding = msgspec.json.Decoder(_Adding)


class Shelf:
    """One projection's snapshots of one session. Every call may raise what `Store`'s do."""

    def __init__(self, store: Store, tenant: str, session: str, name: str, version: int) -> None:
        self._store = store
        self._where = (tenant, session, name, version)

    async def load(self, *, patience: float | None = None) -> Held:
        """What is stored, whole.

        `patience` is how long one answer may take, in seconds; then `TimeoutError`.
        """
        value = await self._head(patience)
        while value is not None:
            held = await self._held(value, patience)
            seen, value = value, value if held.snapshot else await self._head(patience)
            if value == seen:
                return held
        return NOTHING

    async def _head(self, patience: float | None) -> bytes | None:
        async with asyncio.timeout(patience):
            return await self._store.snapshot(*self._where)

    async def _held(self, value: bytes, patience: float | None) -> Held:
        """What a head leads to; a piece that is gone may have gone with it."""
        adding, head = _parted(value)
        found = snapshots.read(head)
        pieces = await self._pieces(found.cut.roots, patience) if found else None
        if found is None or pieces is None:
            return Held(value, None, adding)
        whole = msgspec.structs.replace(found.cut, pieces=pieces)
        return Held(value, msgspec.structs.replace(found, cut=whole), adding)

    async def _pieces(
        self, roots: Iterable[str], patience: float | None
    ) -> dict[str, bytes] | None:
        """All pieces that can be reached; None if one is missing or is not what its name says."""
        found: dict[str, bytes] = {}
        due = list(dict.fromkeys(roots))
        while due:
            now, due = due[:READ], due[READ:]
            async with asyncio.timeout(patience):
                values = await self._store.pieces(*self._where, now)
            more: dict[str, None] = {}
            for name, value in zip(now, values, strict=True):
                raw = piece.opened(name, value)
                if raw is None:
                    return None
                found[name] = raw
                more |= dict.fromkeys(_named(name, raw))
            waiting = set(due)
            due += [name for name in more if name not in found and name not in waiting]
        return found

    async def save(self, snapshot: Snapshot, held: Held) -> bool:
        """Store a snapshot over what was loaded; false when another came first. Idempotent.

        What is written is the head and the pieces that are not there yet.
        """
        pieces = snapshot.cut.pieces
        have = held.snapshot.cut.pieces if held.snapshot else {}
        new = [name for name in pieces if name not in have]
        drop: Collection[str] | None = None
        if held.snapshot:
            drop = {*have, *held.adding}.difference(pieces)
        before = None if held.value is None else snapshots.header(held.value)
        batches = _batches((name, piece.pack(pieces[name])) for name in new)
        batch, following = next(batches, {}), next(batches, None)
        if following is not None:
            line = _encode(_Adding(tuple(new), os.urandom(16).hex()))
            if not await self._add(held, line, before, chain((batch, following), batches)):
                return False
            batch, before, drop = {}, line, drop or ()
        value = snapshots.write(snapshot)
        return await self._write(value, before, put=batch, drop=drop)

    async def _add(
        self, held: Held, line: bytes, before: bytes | None, batches: Iterable[dict[str, bytes]]
    ) -> bool:
        """Put pieces in several writes; meanwhile the snapshot that is there stays what it is."""
        over = _parted(held.value)[1] if held.value and held.snapshot else b""
        have = held.snapshot.cut.pieces if held.snapshot else {}
        drop: Collection[str] | None = {*held.adding}.difference(have) if held.snapshot else None
        for batch in batches:
            if not await self._write(line + b"\n" + over, before, put=batch, drop=drop):
                return False
            before, drop = line, ()
        return True

    async def _write(
        self,
        value: bytes,
        before: bytes | None,
        *,
        put: Mapping[str, bytes],
        drop: Collection[str] | None,
    ) -> bool:
        return await self._store.save_snapshot(
            *self._where, value, replacing=before, put=put, drop=drop
        )


def _parted(value: bytes) -> tuple[tuple[str, ...], bytes]:
    """What is being added, and the head below that."""
    line, _, below = value.partition(b"\n")
    try:
        return _adding.decode(line).adding, below
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return (), value


def _named(name: str, raw: bytes) -> Iterable[str]:
    try:
        return () if piece.is_leaf(name) else piece.children(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()


def _batches(pieces: Iterable[tuple[str, bytes]]) -> Iterator[dict[str, bytes]]:
    batch: dict[str, bytes] = {}
    size = 0
    for name, value in pieces:
        if batch and size + len(value) > WRITE:
            yield batch
            batch, size = {}, 0
        batch[name] = value
        size += len(value)
    if batch:
        yield batch
