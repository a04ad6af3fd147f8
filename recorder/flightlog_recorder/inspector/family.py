"""A session's family: what it was forked or called from, and what came of it; by the catalog."""

from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct

from flightlog import Log
from flightlog.cache.catalog import Cursor, Row

MOST_SEEN = 5_000  # rows that are looked through for forks: the catalog has no index of them
MOST_SHOWN = 200
DEEPEST = 64  # ancestors
PAGE = 1_000


class Relative(Struct, frozen=True, omit_defaults=True):
    """A member of the family; `origin` is the member it comes from, at event `seq` if forked."""

    session: str
    status: str | None = None
    key: str | None = None
    last_ts: str | None = None
    origin: str | None = None
    how: str | None = None
    seq: int | None = None


class Family(Struct, frozen=True):
    """The members, ancestors first; `whole` is false where there may be others."""

    session: str
    members: list[Relative]
    whole: bool = True


async def of(log: Log, session: str) -> Family:
    """The session's family."""
    if log.store is None:
        return Family(session, [Relative(session)], whole=False)
    ancestors = await _ancestors(log, session)
    root = ancestors[-1].session
    known = {each.session: each for each in reversed(ancestors)}
    rows, whole = await _looked_through(log)
    waiting = [root, *known]
    while waiting and len(known) < MOST_SHOWN:
        parent = waiting.pop(0)
        async for child in _children(log, parent):
            rows.setdefault(child.session, child)
        for row in rows.values():
            if row.session not in known and _origin(row)[0] == parent:
                known[row.session] = _relative(row)
                waiting.append(row.session)
    return Family(session, list(known.values())[:MOST_SHOWN], whole and not waiting)


async def _ancestors(log: Log, session: str) -> list[Relative]:
    """The session and those before it, the eldest last."""
    found: list[Relative] = []
    at: str | None = session
    while at is not None and len(found) < DEEPEST and at not in {each.session for each in found}:
        row = await log.store.row(log.tenant, at) if log.store else None
        found.append(_relative(row) if row else Relative(at))
        at = found[-1].origin
    return found


async def _looked_through(log: Log) -> tuple[dict[str, Row], bool]:
    """The forks among the latest sessions, and whether these are all."""
    found: dict[str, Row] = {}
    seen, after = 0, None
    while True:
        page = await log.sessions(after=after, limit=PAGE)
        found |= {row.session: row for row in page.rows if _origin(row)[0] is not None}
        seen, after = seen + len(page.rows), page.after
        if after is None or seen >= MOST_SEEN:
            return found, after is None


async def _children(log: Log, parent: str) -> AsyncIterator[Row]:
    after: Cursor | None = None
    for _ in range(MOST_SHOWN // 100):
        page = await log.sessions(parent=parent, after=after)
        for row in page.rows:
            yield row
        if (after := page.after) is None:
            return


def _relative(row: Row) -> Relative:
    origin, how, seq = _origin(row)
    return Relative(row.session, row.status, row.key, row.last_ts, origin, how, seq)


def _origin(row: Row) -> tuple[str | None, str | None, int | None]:
    """Whom a session comes from, how, and at which event."""
    match row.lineage:
        case {"forked_from": {"session": str(source), "seq": int(seq)}}:
            return source, "fork", seq
        case {"parent": {"session": str(source)} as parent}:
            return source, "child", _seq(parent)
        case _:
            return None, None, None


def _seq(parent: dict[str, Any]) -> int | None:
    seq = parent.get("announced_by")
    return seq if isinstance(seq, int) else None
