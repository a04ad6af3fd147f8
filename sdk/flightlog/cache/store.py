"""Redis or Valkey, a cache of the log: snapshots and rows. It and `client` alone know redis-py."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Collection, Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from redis import exceptions as refusals

from flightlog.cache import catalog, client, place, script, vitals, walk
from flightlog.cache.catalog import Cursor, Filter, Page, Row
from flightlog.cache.client import Client
from flightlog.cache.place import Seen
from flightlog.cache.vitals import Vitals
from flightlog.errors import FlightlogError, NotPermitted

PURGED_LIFE = 86_400  # seconds that a purged mark stays, so that a late projector meets it
TIMEOUT = 2.0  # seconds for one answer: a cache that is slower is as good as down
_CHUNK = walk.CHUNK  # rows fetched at once
_KEYS_SCANNED = 10_000  # sessions that a listing by key looks at, at most
_ATTEMPTS = 16  # compare-and-set rounds; each lost one means that another replica got on


class StoreUnavailable(FlightlogError):
    """Redis is down, slow, full or not answering as Redis does. Nothing is lost; retrying helps."""

    def __init__(self, where: str, why: str) -> None:
        self.where = where
        super().__init__(f"no use of Redis at {where}: {why}; sessions go on from the log alone")


class Saved(Struct, frozen=True):
    """How a row was saved: `written`, or a later one is there; `conflicts` counts lost rounds."""

    written: bool
    conflicts: int


class Store:
    """A connection to Redis. Every call may raise `StoreUnavailable` or `NotPermitted`, in time."""

    def __init__(self, connected: Client, where: str, prefix: str = place.PREFIX) -> None:
        self._client: Any = connected
        self.where, self.places = where, place.Places(prefix)
        self._swap = connected.register_script(script.SWAP)
        self._put_row = connected.register_script(script.ROW)
        self._put_snapshot = connected.register_script(script.SNAPSHOT)
        self._keep_snapshot = connected.register_script(script.KEEP)

    @classmethod
    def connect(cls, url: str, *, timeout: float = TIMEOUT) -> "Store":
        """A store on `url` (`redis://`, `rediss://`, `unix://`; `redis+cluster://` for a cluster).

        Nothing is sent yet; `ping` tells whether it answers. `timeout` is that of one answer.
        `?prefix=acme` in the URL has all keys begin with `acme:` instead of `flightlog:`.
        """
        try:
            plain, prefix = client.prefixed(url)
            made = client.make(plain, timeout)
        except (ValueError, TypeError, AttributeError) as exc:
            raise StoreUnavailable("the given URL", "it is no redis:// URL") from exc
        return cls(made, client.where(made), prefix)

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        with contextlib.suppress(refusals.RedisError, OSError):
            await self._client.aclose()

    async def ping(self) -> None:
        """Return if Redis answers."""
        with self._translated():
            await self._client.ping()

    async def vitals(self) -> list[Vitals]:
        """How each server of it is set, and how it stands."""
        with self._translated():
            return await vitals.of(self._client)

    async def excess(self) -> list[str]:
        """What this user may do though nothing of ours needs it; tried without effect."""
        with self._translated():
            return await vitals.excess(self._client)

    async def snapshot(self, tenant: str, session: str, name: str, version: int) -> bytes | None:
        """The stored snapshot of a projection, unchecked: `flightlog.snapshot.read` judges it."""
        key = self.places.snapshots(tenant, session)
        found: bytes | None = await self._read(self._client.hget(key, f"{name}:{version}"), None)
        return found

    async def parts(
        self, tenant: str, session: str, name: str, version: int, parts: Sequence[str]
    ) -> list[bytes | None]:
        """Stored parts of a projection's snapshots, in their order, unchecked.

        A piece is `/` and its name. Behind an `@` is what is kept: a head's seq, a piece, or, with
        nothing there, the list of the seqs.
        """
        fields = [f"{name}:{version}{each}" for each in parts]
        asked = self._client.hmget(self.places.snapshots(tenant, session), fields)
        found: list[bytes | None] = await self._read(asked, [None] * len(fields))
        return found

    async def save_snapshot(
        self,
        tenant: str,
        session: str,
        name: str,
        version: int,
        value: bytes,
        *,
        replacing: bytes | None,
        put: Mapping[str, bytes] = MappingProxyType({}),
        drop: Collection[str] | None = (),
    ) -> bool:
        """Store a snapshot if what is there begins with `replacing` (None: nothing is there).

        With it, `put` stores pieces and `drop` removes some: None means all that are there
        before, with what was kept, and what earlier versions left.
        False when another one came first, or the session is purged. Idempotent.
        """
        keys = [self.places.snapshots(tenant, session), self.places.purged(tenant, session)]
        expected = [replacing or b"", "0" if replacing is None else "1"]
        gone = ["1", 0] if drop is None else ["0", len(drop), *drop]
        pieces = [part for each in put.items() for part in each]
        said: list[Any] = [f"{name}:{version}", *expected, value, *gone, *pieces]
        with self._translated():
            return bool(await self._put_snapshot(keys, said))

    async def keep_snapshot(
        self,
        tenant: str,
        session: str,
        name: str,
        version: int,
        header: bytes,
        *,
        seq: int,
        pieces: Collection[str],
    ) -> bool:
        """Let the snapshot with that header stay as the one at `seq`, and these pieces with it.

        False when it is not the one that is there, or the session is purged. Idempotent.
        """
        keys = [self.places.snapshots(tenant, session), self.places.purged(tenant, session)]
        with self._translated():
            said: list[Any] = [f"{name}:{version}", header, seq, *pieces]
            return bool(await self._keep_snapshot(keys, said))

    async def look(self, tenant: str, sessions: Sequence[str]) -> list[Seen]:
        """The rows of many sessions of a tenant, in their order, `_CHUNK` a round trip."""
        seen: list[Seen] = []
        for start in range(0, len(sessions), _CHUNK):
            keys = [
                self.places.row(tenant, session) for session in sessions[start : start + _CHUNK]
            ]
            with self._translated():
                seen += [place.seen_as(value) for value in await self._client.mget(keys)]
        return seen

    async def row(self, tenant: str, session: str) -> Row | None:
        """A session's row, or None."""
        return (await self._seen(tenant, session)).row

    async def save_row(self, row: Row, *, seen: Seen | None = None) -> Saved:
        """Write a row and its indexes, unless one that reaches further is there. Idempotent.

        Nothing is written of a purged session. `seen` spares the look when the row was read just
        now.
        """
        seen = seen or place.UNSEEN
        for conflicts in range(_ATTEMPTS):
            if not catalog.replaces(row, seen.row) or await self._is_purged(row, seen):
                return Saved(False, conflicts)
            if await self._put(row.tenant, row.session, catalog.succeeding(row, seen.row), seen):
                revived = await self._is_purged(row, seen)  # since the look at the mark
                if revived:
                    await self._remove_row(row.tenant, row.session)
                return Saved(not revived, conflicts)
            seen = await self._seen(row.tenant, row.session)
        raise self._too_many()

    async def note_damage(self, tenant: str, session: str, damage: str | None) -> None:
        """Write into a session's row what the recorder found in its log, None for nothing.

        Without a row nothing is written. Idempotent.
        """
        for _ in range(_ATTEMPTS):
            seen = await self._seen(tenant, session)
            if seen.row is None or seen.row.damage == damage:
                return
            if await self._put(tenant, session, replace(seen.row, damage=damage), seen):
                return
        raise self._too_many()

    async def note_stalled(self, row: Row, since: str | None) -> bool:
        """Mark a session until its next event; False if its row is not as it was. Idempotent."""
        seen = await self._seen(row.tenant, row.session)
        if seen.row is None or seen.row.read_to != row.read_to:
            return False
        return await self._put(row.tenant, row.session, replace(seen.row, stalled=since), seen)

    async def purge(self, tenant: str, session: str, *, sequence: int) -> None:
        """Forget a session: its snapshots, its row and its places in the indexes. Idempotent.

        Leaves `purged@sequence` for a day, so that no late projector brings it back.
        """
        with self._translated():  # the mark first: no snapshot may slip in after the deletion
            await self._client.set(self.places.purged(tenant, session), sequence, ex=PURGED_LIFE)
            await self._client.unlink(self.places.snapshots(tenant, session))
        await self._remove_row(tenant, session)

    async def _is_purged(self, row: Row, seen: Seen) -> bool:
        """Whether the session is purged; asked where no row was: a purge takes one along."""
        if seen.row is not None:
            return False
        with self._translated():
            return bool(await self._client.exists(self.places.purged(row.tenant, row.session)))

    async def _remove_row(self, tenant: str, session: str) -> None:
        for _ in range(_ATTEMPTS):
            seen = await self._seen(tenant, session)
            if not seen.mark or await self._put(tenant, session, None, seen):
                return
        raise self._too_many()

    async def _put(self, tenant: str, session: str, row: Row | None, seen: Seen) -> bool:
        """Replace what was seen by a row, or by nothing; false if it is not there any more."""
        keys, places = self.places.moves(tenant, session, row, seen)
        put = [seen.mark, catalog.encode(row) if row else b"", *places]
        with self._translated():
            return bool(await self._put_row([self.places.row(tenant, session), *keys], put))

    async def _seen(self, tenant: str, session: str) -> Seen:
        return (await self.look(tenant, [session]))[0]

    def _too_many(self) -> StoreUnavailable:
        return StoreUnavailable(self.where, "too many others write the same row")

    async def rows(
        self,
        tenant: str,
        wanted: Filter = catalog.ANY,
        *,
        before: Cursor | None = None,
        limit: int = 100,
    ) -> Page:
        """A page of rows, newest activity first, from the catalog alone: no log is read.

        By key, at most 10,000 sessions are looked at, and the page says so.
        """
        if wanted.key_ranges():
            return await self._rows_by_key(tenant, wanted, before, limit)
        found: list[Row] = []
        at = before
        async for cursors in self._walk(tenant, wanted, before):
            rows = await self.look(tenant, [cursor.session for cursor in cursors])
            for cursor, seen in zip(cursors, rows, strict=True):
                at = cursor
                if seen.row is not None and wanted.matches(seen.row):
                    found.append(seen.row)
                    if len(found) == limit:
                        return Page(found, at)
        return Page(found, None)

    def _walk(
        self, tenant: str, wanted: Filter, before: Cursor | None
    ) -> AsyncIterator[list[Cursor]]:
        if (origin := wanted.origin()) is None:
            index = self.places.index(tenant, wanted.index())
            return walk.by_time(self._client, self._read, index, before)
        index = self.places.index(tenant, catalog.ORIGINS)
        return walk.by_origin(self._client, self._read, index, origin, before)

    async def _rows_by_key(
        self, tenant: str, wanted: Filter, before: Cursor | None, limit: int
    ) -> Page:
        members: list[bytes] = []
        for begun in wanted.key_ranges():
            members += await self._key_members(tenant, begun.encode())
        sessions = [member.rpartition(b"\0")[2].decode("utf-8", "replace") for member in members]
        rows = [seen.row for seen in await self.look(tenant, sessions) if seen.row is not None]
        ordered = catalog.newest_first(row for row in rows if wanted.matches(row))
        places = [(Cursor(catalog.activity(row), row.session), row) for row in ordered]
        below = [place for place in places if before is None or place[0] < before]
        after = below[limit - 1][0] if len(below) > limit else None
        partial = len(members) >= _KEYS_SCANNED
        return Page([row for _, row in below[:limit]], after, partial)

    async def _key_members(self, tenant: str, begun: bytes) -> list[bytes]:
        index, low, high = (
            self.places.index(tenant, catalog.KEYS),
            b"[" + begun,
            b"[" + begun + b"\xff",
        )
        asked = self._client.zrangebylex(index, low, high, start=0, num=_KEYS_SCANNED)
        found: list[bytes] = await self._read(asked, [])
        return found

    async def value(self, key: str) -> bytes | None:
        """A plain value of ours, or None."""
        found: bytes | None = await self._read(self._client.get(key), None)
        return found

    async def exchange(
        self,
        key: str,
        expected: bytes | None,
        new: bytes,
        *,
        life: int = 0,
        beside: tuple[str, bytes] | None = None,
    ) -> bool:
        """Set a plain value if it is `expected` (None: absent) or already `new`. Idempotent.

        `life` in seconds, 0 for ever. `beside`: only while that other key has that value.
        """
        seen = [expected or b"", "0" if expected is None else "1"]
        keys, held = ([key, beside[0]], [beside[1]]) if beside else ([key], [])
        with self._translated():
            return bool(await self._swap(keys, [*seen, new, life, *held]))

    async def drop(self, key: str) -> None:
        """Remove a plain value. Idempotent."""
        with self._translated():
            await self._client.unlink(key)

    async def enlist(self, key: str, member: str) -> None:
        """Add to a set. Idempotent."""
        with self._translated():
            try:
                await self._client.sadd(key, member)
            except refusals.ResponseError as exc:
                if not _is_foreign(exc):
                    raise
                await self._client.unlink(key)
                await self._client.sadd(key, member)

    async def delist(self, key: str, member: str) -> None:
        """Remove from a set. Idempotent."""
        await self._read(self._client.srem(key, member), 0)

    async def listed(self, key: str) -> list[str]:
        """The members of a set, sorted."""
        found: set[bytes] = await self._read(self._client.smembers(key), set())
        return sorted(member.decode("utf-8", "replace") for member in found)

    async def _read(self, asked: Awaitable[Any], absent: Any) -> Any:
        """What was asked for; a value of another type is garbage, and as good as absent."""
        with self._translated():
            try:
                return await asked
            except refusals.ResponseError as exc:
                if not _is_foreign(exc):
                    raise
                return absent

    @contextlib.contextmanager
    def _translated(self) -> Generator[None]:
        """The one place where redis-py's errors become ours; their texts may quote values."""
        try:
            yield
        except (
            refusals.AuthenticationError,
            refusals.AuthorizationError,
            refusals.NoPermissionError,
        ) as exc:
            raise NotPermitted(f"Redis at {self.where} refused us") from exc
        except refusals.ResponseError as exc:
            raise StoreUnavailable(self.where, f"it answered {_code(exc)}") from exc
        except (refusals.RedisError, refusals.RedisClusterException, OSError, TimeoutError) as exc:
            raise StoreUnavailable(self.where, type(exc).__name__) from exc


def _is_foreign(exc: Exception) -> bool:
    return str(exc).startswith("WRONGTYPE")


def _code(exc: Exception) -> str:
    """The error's class, or the code a server answers with: one word in capitals, never a value."""
    word = str(exc).split(" ", 1)[0]
    return word if word.isalpha() and word.isupper() else type(exc).__name__
