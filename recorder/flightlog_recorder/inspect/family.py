"""A session's family: what it was forked, called or imported from, and what came of it."""

from collections.abc import AsyncIterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from flightlog import Log
from flightlog.cache.catalog import Cursor, Filter, Row
from flightlog.cache.store import Store

MOST = 200  # members that are told
DEEPEST = 64  # ancestors
PAGE = 100

How = Literal["fork", "child", "import"]


class Relative(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A member of the family; `origin` is the member that it comes from.

    `seq` is the last event that a fork shares with its origin, or the response that announced the
    call of a child; `by` is that call, or the source of an import. Without a `status` the catalog
    does not know the session: it was purged, or is not projected yet.
    """

    session: str
    status: str | None = None
    key: str | None = None
    labels: dict[str, str] = {}
    last_ts: str | None = None
    origin: str | None = None
    how: How | None = None
    seq: int | None = None
    by: str | None = None


class Family(Struct, frozen=True):
    """The members, each behind its origin; `why` says what is left out, if anything is."""

    session: str
    members: list[Relative]
    why: str | None = None


async def of(log: Log, session: str) -> Family:
    """The family of a session, from the catalog's indexes; reads no log."""
    if log.store is None:
        return Family(session, [Relative(session=session)], "there is no Redis to ask for others")
    elders, why = await _elders(log.store, log.tenant, session)
    found = {each.session: each for each in elders}
    waiting = [each.session for each in reversed(elders)]  # what came of the session itself first
    for origin in waiting:
        async for row in _offspring(log.store, log.tenant, origin):
            if row.session in found:
                continue
            if len(found) >= MOST:
                return Family(session, list(found.values()), f"{MOST} are told; there are more")
            found[row.session] = _relative(row)
            waiting.append(row.session)
    return Family(session, list(found.values()), why)


async def _elders(store: Store, tenant: str, session: str) -> tuple[list[Relative], str | None]:
    """The session and those before it, the eldest first, and why they may not be all."""
    found: list[Relative] = []
    at: str | None = session
    while at is not None and len(found) < DEEPEST and at not in {each.session for each in found}:
        row = await store.row(tenant, at)
        found.append(_relative(row) if row else Relative(session=at))
        at = found[-1].origin
    found.reverse()
    if at is None:
        return found, None
    found[0] = replace(found[0], origin=None)  # the tree has a root, whatever the rows say
    if len(found) < DEEPEST:
        return found, f"{found[0].session} comes from {at}, which comes from it: a circle"
    return found, f"{DEEPEST} ancestors are told; there are more"


async def _offspring(store: Store, tenant: str, origin: str) -> AsyncIterator[Row]:
    for wanted in (Filter(fork_of=origin), Filter(parent=origin)):
        after: Cursor | None = None
        while True:
            page = await store.rows(tenant, wanted, before=after, limit=PAGE)
            for row in page.rows:
                yield row
            if (after := page.after) is None:
                break


def _relative(row: Row) -> Relative:
    """A row's member; a fork of a child or of an import is a fork first."""
    about = Relative(
        session=row.session,
        status="damaged" if row.trouble else row.status,
        key=row.key,
        labels=row.labels,
        last_ts=row.last_ts,
    )
    match row.lineage:
        case {"forked_from": {"session": str(source), "seq": int(seq)}}:
            return replace(about, origin=source, how="fork", seq=seq)
        case {"parent": {"session": str(source)} as call}:
            by = _text(call.get("name")) or _text(call.get("call_id"))
            seq = call.get("announced_by")
            return replace(
                about,
                origin=source,
                how="child",
                seq=seq if isinstance(seq, int) else None,
                by=by,
            )
        case {"imported": {"format": str(format)} as source}:
            place = _text(source.get("path")) or _text(source.get("id"))
            return replace(about, how="import", by=f"{format} {place or ''}".rstrip())
        case _:
            return about


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
