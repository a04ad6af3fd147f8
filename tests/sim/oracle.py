"""The reader's rule once more, written from DESIGN section 4 alone: the checker's own opinion."""

from bisect import bisect_left
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.event import digest_of
from tests.sim.broker import Entry

_TAKEOVERS = ("session_started", "session_resumed", "session_reopened")


class _Said(Struct):
    type: str
    seq: int | None = None
    prev: str | None = None
    payload: Any = None


_decode = msgspec.json.Decoder(_Said).decode


class Told(Struct, frozen=True):
    """What one stored event says of itself."""

    entry: Entry
    digest: str
    seq: int
    prev: str | None
    type: str
    payload: dict[str, Any]

    @property
    def number(self) -> int:
        """The writer number it brings, 0 for none."""
        return int(self.payload["writer"]["number"]) if self.type in _TAKEOVERS else 0


def told(entry: Entry) -> Told | None:
    """Read an entry; None for a tombstone, which has no seq."""
    body = entry.message.body
    said = _decode(body)
    if said.seq is None:
        return None
    payload = said.payload if isinstance(said.payload, dict) else {}
    return Told(entry, digest_of(body), said.seq, said.prev, said.type, payload)


def is_seal(entry: Entry) -> bool:
    """Whether the entry ends a base."""
    return _decode(entry.message.body).type == "seal"


def chain(told: list[Told]) -> list[Told]:
    """The events that count, of everything that is stored on the subject, in stream order."""
    after = _by_place(told)
    counted: list[Told] = []
    force, at, sequence = 0, None, 0
    while found := [
        each for each in after.get((len(counted) + 1, at), ()) if each.entry.sequence > sequence
    ]:
        best = max(found, key=lambda each: (each.number or force, -each.entry.sequence))
        counted.append(best)
        force = max(force, best.number)
        at, sequence = best.digest, best.entry.sequence
    return counted


def explained(told: list[Told], counted: list[Told]) -> bool:
    """Whether every event can be reached from the first: else something is missing or changed.

    What branches off at a seq that was passed already may have lost its root (a late try of a
    writer, after a rollback): readers do not keep the digests of all that they have read, so they
    take it for a stray like any other, and with it what goes on from there.
    """
    after = _by_place(told)
    sequences = [each.entry.sequence for each in counted]
    late = [e for e in told if e.seq <= bisect_left(sequences, e.entry.sequence)]
    places: list[tuple[int, str | None]] = [(1, None), *((e.seq + 1, e.digest) for e in late)]
    reached = {each.entry.sequence for each in late}
    while places:
        for each in after.get(places.pop(), ()):
            if each.entry.sequence not in reached:
                reached.add(each.entry.sequence)
                places.append((each.seq + 1, each.digest))
    return all(each.entry.sequence in reached for each in told)


def _by_place(told: list[Told]) -> dict[tuple[int, str | None], list[Told]]:
    places: dict[tuple[int, str | None], list[Told]] = {}
    for each in told:
        places.setdefault((each.seq, each.prev), []).append(each)
    return places
