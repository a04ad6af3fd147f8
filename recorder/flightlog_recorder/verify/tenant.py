"""The sessions there are: those that streams hold, and catalog rows that no stream holds."""

import asyncio
from collections.abc import AsyncIterator

from flightlog.bus.nats_bus import NatsBus
from flightlog.cache.store import Store
from flightlog.wire import subject as names

ROWS = 200  # rows at once, each asked for with two direct gets


async def sessions(bus: NatsBus, tenant: str) -> AsyncIterator[list[str]]:
    """Every session of a tenant that has messages, slot by slot."""
    async for found in held(bus, tenant):
        yield [session for _, session in found]


async def held(bus: NatsBus, tenant: str = "*") -> AsyncIterator[list[tuple[str, str]]]:
    """(tenant, session) of all that have messages, slot by slot: a slot is what memory holds."""
    prefix = bus.layout.prefix
    for slot, stream in enumerate(bus.layout.slots):
        found = set[tuple[str, str]]()
        async for page in bus.subjects(stream, filter=f"{prefix}.{slot}.{tenant}.*.*"):
            parsed = [names.parse_log_subject(each, prefix=prefix) for each in page]
            found |= {(each[0], each[1]) for each in parsed if each is not None}
        if found:
            yield sorted(found)


async def ghosts(bus: NatsBus, store: Store, tenant: str) -> AsyncIterator[list[str]]:
    """Sessions that have a row in the catalog and no message in any stream, page by page."""
    after = None
    while True:
        page = await store.rows(tenant, before=after, limit=ROWS)
        held = await asyncio.gather(*(_is_held(bus, tenant, row.session) for row in page.rows))
        if gone := [row.session for row, there in zip(page.rows, held, strict=True) if not there]:
            yield gone
        after = page.after
        if after is None:
            return


async def _is_held(bus: NatsBus, tenant: str, session: str) -> bool:
    stream = bus.layout.stream_of(session)
    for part in ("live", "base"):
        subject = names.log_subject(tenant, session, part, prefix=bus.layout.prefix)
        if await bus.after(stream, subject, 0) is not None:
            return True
    return False
