"""Walks through an index of rows, newest activity first, in chunks; `read` is the store's."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from flightlog.cache import catalog
from flightlog.cache.catalog import Cursor

CHUNK = 500  # entries fetched at once

Read = Callable[[Awaitable[Any], Any], Awaitable[Any]]


async def by_time(
    client: Any, read: Read, index: str, before: Cursor | None
) -> AsyncIterator[list[Cursor]]:
    """An index by time from `before` down; `skip` gets past entries of the same time."""
    top: str | int = before.activity if before else "+inf"
    skip = 0
    while True:
        asked = client.zrevrangebyscore(index, top, "-inf", start=skip, num=CHUNK, withscores=True)
        found: list[tuple[bytes, float]] = await read(asked, [])
        if not found:
            return
        chunk = [Cursor(int(score), name.decode("utf-8", "replace")) for name, score in found]
        yield [cursor for cursor in chunk if before is None or cursor < before]
        last = chunk[-1].activity
        same = sum(cursor.activity == last for cursor in chunk)
        skip = skip + same if last == top else same
        top = last


async def by_origin(
    client: Any, read: Read, index: str, origin: bytes, before: Cursor | None
) -> AsyncIterator[list[Cursor]]:
    """The index of origins from `before` down, as far as it begins with this one."""
    top = b"(" + origin + (catalog.placed(before) if before else b"\xff")
    while True:
        asked = client.zrevrangebylex(index, top, b"[" + origin, start=0, num=CHUNK)
        found: list[bytes] = await read(asked, [])
        if not found:
            return
        yield [catalog.place_of(member) for member in found]
        top = b"(" + found[-1]
