"""A session's snapshots in Redis: heads, and the pieces that they share.

All lie in one hash. A piece is there exactly if a head there speaks of it: each write compares the
head that was read, and changes head and pieces at once. What is too much for one write goes under
an *adding*: the old head behind a line that names every piece to come. Whoever finds one left
behind knows what to remove.

A new head takes the place of the last one, unless that was *kept*: then it stays under its seq, and
its pieces move to where nothing is removed from. The pieces that are not kept are *loose*: those
that came since, so they are few.
"""

import asyncio
import os
from bisect import bisect_right
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec
from msgspec import Struct

from flightlog import snapshot as snapshots
from flightlog.cache import piece
from flightlog.cache.piece import Stored
from flightlog.cache.store import Store
from flightlog.snapshot import Snapshot

WRITE = 4 << 20  # bytes of pieces in one write: 5 ms of Redis' one thread
READ = 32  # pieces asked for at once: 2 MiB of segments of 1 KiB each
TRIED = 3  # kept snapshots, if the nearest ones are damaged


class Held(Struct, frozen=True):
    """What is stored of a projection: `value` as it is, and the snapshot with all its pieces.

    No snapshot beside a value means garbage. `adding` are pieces that may be there for a snapshot
    that was never finished, `loose` those of the snapshot's that no kept one shares.
    """

    value: bytes | None = None
    snapshot: Snapshot | None = None
    adding: tuple[str, ...] = ()
    loose: frozenset[str] = frozenset()


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

    async def head(self, *, patience: float | None = None) -> Snapshot | None:
        """The last snapshot without its pieces: where it stands."""
        value = await self._head(patience)
        return None if value is None else snapshots.read(_parted(value)[1])

    async def near(self, seq: int, *, patience: float | None = None) -> Snapshot | None:
        """The last snapshot that is kept from `seq` or before, whole; damaged ones are passed."""
        async for value in self._kept(seq, patience):
            if (found := (await self._held(value, patience)).snapshot) is not None:
                return found
        return None

    async def head_near(self, seq: int, *, patience: float | None = None) -> Snapshot | None:
        """The same without its pieces."""
        async for value in self._kept(seq, patience):
            if (found := snapshots.read(value)) is not None:
                return found
        return None

    async def _kept(self, seq: int, patience: float | None) -> AsyncIterator[bytes]:
        """What is kept from `seq` or before, the nearest first."""
        (listed,) = await self._parts(["@"], patience)
        seqs = sorted(int(each) for each in (listed or b"").split() if each.isdigit())
        for each in reversed(seqs[: bisect_right(seqs, seq)][-TRIED:]):
            (value,) = await self._parts([f"@{each}"], patience)
            if value is not None:
                yield value

    async def _head(self, patience: float | None) -> bytes | None:
        async with asyncio.timeout(patience):
            return await self._store.snapshot(*self._where)

    async def _parts(self, parts: Sequence[str], patience: float | None) -> list[bytes | None]:
        async with asyncio.timeout(patience):
            return await self._store.parts(*self._where, parts)

    async def _held(self, value: bytes, patience: float | None) -> Held:
        """What a head leads to; a piece that is gone may have gone with it."""
        adding, head = _parted(value)
        found = snapshots.read(head)
        loose = set[str]()
        pieces = await self._pieces(found.cut.roots, loose, patience) if found else None
        if found is None or pieces is None:
            return Held(value, None, adding)
        whole = msgspec.structs.replace(found.cut, pieces=pieces)
        snapshot = msgspec.structs.replace(found, cut=whole)
        return Held(value, snapshot, adding, frozenset(loose))

    async def _pieces(
        self, roots: Iterable[str], loose: set[str], patience: float | None
    ) -> Stored | None:
        """All pieces that can be reached; None if one is missing or is not what its name says."""
        found: dict[str, bytes] = {}
        pieces = Stored(found)
        due = list(dict.fromkeys(roots))
        while due:
            now, due = due[:READ], due[READ:]
            asked = [f"/{name}" for name in now] + [f"@/{name}" for name in now]
            values = await self._parts(asked, patience)
            more: dict[str, None] = {}
            for name, free, kept in zip(now, values[: len(now)], values[len(now) :], strict=True):
                value = kept if free is None else free
                if value is None or not piece.holds(name, value):
                    return None
                if free is not None:
                    loose.add(name)
                found[name] = value
                more |= dict.fromkeys(_named(name, pieces))
            waiting = set(due)
            due += [name for name in more if name not in found and name not in waiting]
        return pieces

    async def save(self, snapshot: Snapshot, held: Held) -> Held | None:
        """Store a snapshot over what was loaded; None when another came first. Idempotent.

        What is written is the head and the pieces that are not there yet.
        """
        pieces = snapshot.cut.pieces
        have = held.snapshot.cut.pieces if held.snapshot else {}
        new = [name for name in pieces if name not in have]
        drop: Collection[str] | None = None
        if held.snapshot:
            drop = {*held.loose, *held.adding}.difference(pieces)
        before = None if held.value is None else snapshots.header(held.value)
        batches = _batches((name, piece.stored(name, pieces[name])) for name in new)
        batch, following = next(batches, {}), next(batches, None)
        if following is not None:
            line = _encode(_Adding(tuple(new), os.urandom(16).hex()))
            if not await self._add(held, line, before, chain((batch, following), batches)):
                return None
            batch, before, drop = {}, line, drop or ()
        value = snapshots.write(snapshot)
        if not await self._write(value, before, put=batch, drop=drop):
            return None
        return Held(value, snapshot, loose=held.loose.intersection(pieces).union(new))

    async def keep(self, held: Held) -> Held | None:
        """Let the snapshot that was saved stay beside later ones; None when another came first.

        Only a session's purge, or a snapshot saved over garbage, removes it. Idempotent.
        """
        if held.value is None or held.snapshot is None or held.adding:
            return None
        header, seq = snapshots.header(held.value), held.snapshot.seq
        if not await self._store.keep_snapshot(*self._where, header, seq=seq, pieces=held.loose):
            return None
        return msgspec.structs.replace(held, loose=frozenset())

    async def _add(
        self, held: Held, line: bytes, before: bytes | None, batches: Iterable[dict[str, bytes]]
    ) -> bool:
        """Put pieces in several writes; meanwhile the snapshot that is there stays what it is."""
        over = _parted(held.value)[1] if held.value and held.snapshot else b""
        have = held.loose if held.snapshot else frozenset[str]()
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


def _named(name: str, pieces: Mapping[str, bytes]) -> Iterable[str]:
    try:
        return () if piece.is_leaf(name) else piece.children(pieces[name])
    except (msgspec.DecodeError, ValueError):
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
