"""Which chunks of a session are garbage. Pure.

A writer stores a chunk before the event that refers to it, and stores it anew rather than rely on
one that it finds. So a chunk that is older than the end of its writer's time, and that no event
refers to, never will be referred to. While somebody writes, clocks decide what is older; in a
session that nobody writes, all that was seen before it was looked at is.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

CLOSES = frozenset(  # events after which nobody writes until a writer has opened the session
    {"session_suspended", "session_ended", "session_forked", "session_imported"}
)
LEAVES = CLOSES | {  # events from which on an older writer appends no more
    "session_started",
    "session_resumed",
    "session_reopened",
}
SKEW = timedelta(seconds=60)  # by which the clocks of two streams' leaders may differ
ORPHANED = timedelta(days=1)  # after which a session without a log is given up


class Chunk(Struct, frozen=True):
    """A stored chunk that no event refers to; `at` is by its stream's clock."""

    digest: str
    sequence: int
    at: datetime


def of_session(chunks: Iterable[Chunk], left: datetime, *, skew: timedelta = SKEW) -> list[Chunk]:
    """Those that are garbage in a session whose last writer's change was stored at `left`."""
    return [chunk for chunk in chunks if chunk.at < left - skew]


def without_log(
    chunks: Iterable[Chunk], now: datetime, *, orphaned: timedelta = ORPHANED
) -> list[Chunk]:
    """Those that are garbage where there is no log: none of them while one is young."""
    found = list(chunks)
    return found if all(chunk.at < now - orphaned for chunk in found) else []
