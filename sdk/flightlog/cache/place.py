"""Where rows and snapshots live in Redis, and which indexes a row leaves and enters. Pure."""

import hashlib
from typing import Any

from msgspec import Struct

from flightlog.cache import catalog
from flightlog.cache.catalog import Row


class Seen(Struct, frozen=True):
    """A row as it was read, None if there is none, and the mark that replacing it needs."""

    row: Row | None
    mark: str

    @property
    def covers(self) -> int:
        """The stream sequence up to which the session is projected."""
        return self.row.read_to if self.row else 0


UNSEEN = Seen(None, "")
PREFIX = "flightlog"


class Places(Struct, frozen=True):
    """The names of our keys; all begin with `prefix`, by which those who share a Redis differ."""

    prefix: str = PREFIX

    def snapshots(self, tenant: str, session: str) -> str:
        """The hash of a session's snapshots and their pieces."""
        return f"{self.prefix}:session:{{{tenant}.{session}}}:snapshots"

    def purged(self, tenant: str, session: str) -> str:
        """What a purge leaves for a day: no late projector may bring the session back."""
        return f"{self.prefix}:session:{{{tenant}.{session}}}:purged"

    def row(self, tenant: str, session: str) -> str:
        """A session's row."""
        return f"{self.prefix}:tenant:{{{tenant}}}:row:{session}"

    def index(self, tenant: str, name: str) -> str:
        """An index of a tenant's rows."""
        return f"{self.prefix}:tenant:{{{tenant}}}:by:{name}"

    def stream(self, stream: str, name: str) -> str:
        """What is known of a stream: how far it is projected, and who does it."""
        return f"{self.prefix}:stream:{{{stream}}}:{name}"

    def moves(
        self, tenant: str, session: str, row: Row | None, seen: Seen
    ) -> tuple[list[str], list[Any]]:
        """The indexes to touch, and for each the member and the score, '' to leave it."""
        steps = _steps(session, row, seen)
        keys = [self.index(tenant, name) for name, _, _ in steps]
        return keys, [part for _, member, score in steps for part in (member, score)]


def _steps(session: str, row: Row | None, seen: Seen) -> list[tuple[str, str | bytes, int | str]]:
    enters = catalog.indexes(row)
    unreadable = seen.mark and seen.row is None
    leaves = catalog.possible_indexes() if unreadable else catalog.indexes(seen.row)
    score = catalog.activity(row) if row else 0
    steps: list[tuple[str, str | bytes, int | str]] = [
        (name, session, score if name in enters else "") for name in sorted(enters | leaves)
    ]
    new, old = catalog.members(row), catalog.members(seen.row)
    steps += [(name, member, "") for name, member in sorted(old - new)]
    steps += [(name, member, 0) for name, member in sorted(new)]
    return steps


def seen_as(value: bytes | None) -> Seen:
    """What a stored value says, and its mark."""
    if value is None:
        return UNSEEN
    mark = hashlib.sha1(value, usedforsecurity=False).hexdigest()
    return Seen(catalog.decode(value), mark)
