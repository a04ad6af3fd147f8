"""Emptying Redis, to show that only time is lost; one that holds others' data is spared."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio as redis

from flightlog.cache.store import Store


class Cache:
    """The demo's Redis. `ours`: it was empty at first, so that all of it may be dropped."""

    def __init__(self, client: Any, *, ours: bool) -> None:
        self._client = client
        self.ours = ours

    async def empty(self, tenant: str, sessions: list[str]) -> int:
        """Drop everything, or only what belongs to these sessions; returns the keys dropped."""
        if self.ours:
            count = int(await self._client.dbsize())
            await self._client.flushdb()
            return count
        return sum([await self._drop(tenant, session) for session in sessions])

    async def _drop(self, tenant: str, session: str) -> int:
        keys = [f"flightlog:session:{{{tenant}.{session}}}:snapshots"]
        return int(await self._client.unlink(*keys, f"flightlog:tenant:{{{tenant}}}:row:{session}"))


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[Cache]:
    """Connect, and look whether anything is there yet. Raises `StoreUnavailable`."""
    store = Store.connect(url)
    try:
        await store.ping()
    finally:
        await store.close()
    client = redis.Redis.from_url(url)
    try:
        yield Cache(client, ours=not await client.dbsize())
    finally:
        await client.aclose()
