"""Floors: below which stream sequence the catalog is whole, and who is making it whole again."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from flightlog.cache.store import Store

ECHO_LIFE = 86_400  # seconds that a replica's echo outlives the replica
REBUILD_LIFE = 10  # seconds after which another replica takes over an abandoned rebuild


class Floor(Struct, frozen=True):
    """All up to stream `sequence` is projected; `generation` names the rebuild that said so."""

    generation: str
    sequence: int


class Floors:
    """What Redis remembers about one stream. Every call may raise `StoreUnavailable`, in time.

    `replica` is this process: its echo is the last thing it wrote. A Redis that answers with
    another one has lost writes (emptied, restored from a dump, failed over).
    """

    def __init__(self, store: Store, stream: str, *, replica: str = "") -> None:
        self._store = store
        self._replica = replica
        self._floor, self._rebuilding, self._aside, self._echo = (
            store.places.stream(stream, name)
            for name in ("floor", "rebuilding", "aside", f"echo:{replica}")
        )

    async def floor(self) -> Floor | None:
        """The floor; None means that the catalog was never whole, or is lost."""
        return _read(await self._store.value(self._floor))

    async def raise_to(self, floor: Floor, *, expected: Floor) -> bool:
        """Set the floor if it is still the expected one. Idempotent."""
        return await self._store.exchange(
            self._floor, msgspec.json.encode(expected), msgspec.json.encode(floor)
        )

    async def claim(self) -> bool:
        """Take the rebuild for 10 s; false while another replica has it. Idempotent."""
        mine = self._replica.encode()
        return await self._store.exchange(self._rebuilding, None, mine, life=REBUILD_LIFE)

    async def keep(self) -> bool:
        """Keep the rebuild for another 10 s; false if it is not ours any more."""
        mine = self._replica.encode()
        return await self._store.exchange(self._rebuilding, mine, mine, life=REBUILD_LIFE)

    async def release(self) -> None:
        """Free the rebuild, if it is ours. Idempotent."""
        if await self.keep():
            await self._store.drop(self._rebuilding)

    async def create(self, floor: Floor) -> bool:
        """Set the floor at the end of a rebuild; false if that is not ours any more.

        A Redis that is emptied meanwhile has lost the claim, too: no floor is set on nothing.
        """
        if not await self.keep():
            return False
        found = await self._store.value(self._floor)
        claim = (self._rebuilding, self._replica.encode())
        return await self._store.exchange(
            self._floor, found, msgspec.json.encode(floor), beside=claim
        )

    async def rebuilding(self) -> bool:
        """Whether the stream's part of the catalog is not whole now."""
        return await self.floor() is None or await self.claimed()

    async def claimed(self) -> bool:
        """Whether a replica makes it whole now."""
        return await self._store.value(self._rebuilding) is not None

    async def echo(self, new: bytes, *, expected: bytes | None) -> bool:
        """Write this replica's echo; false when Redis does not remember the expected one."""
        return await self._store.exchange(self._echo, expected, new, life=ECHO_LIFE)

    async def echoed(self) -> bytes | None:
        """This replica's echo as Redis remembers it: any bytes, when others wrote there."""
        return await self._store.value(self._echo)

    async def set_aside(self, tenant: str, session: str) -> None:
        """Remember a session that could not be projected, to be tried again. Idempotent."""
        await self._store.enlist(self._aside, f"{tenant}.{session}")

    async def take_back(self, tenant: str, session: str) -> None:
        """Forget that a session was set aside. Idempotent."""
        await self._store.delist(self._aside, f"{tenant}.{session}")

    async def aside(self) -> list[tuple[str, str]]:
        """The (tenant, session) of every session that is set aside."""
        parts = [member.partition(".") for member in await self._store.listed(self._aside)]
        return [(tenant, session) for tenant, _, session in parts]


async def rebuilding(store: Store, streams: Sequence[str]) -> list[str]:
    """The streams whose part of the catalog is not whole now."""
    return [stream for stream in streams if await Floors(store, stream).rebuilding()]


def _read(value: bytes | None) -> Floor | None:
    try:
        return msgspec.json.decode(value, type=Floor) if value else None
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError):
        return None
