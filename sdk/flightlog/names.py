"""A map from names to what was recorded under them first, shared by old and new states."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

SIZE = 32  # names in the part that is copied when one is added

V = TypeVar("V")


class Part(Struct, Generic[V], frozen=True, dict=True):
    """Names in the order in which they were added: so many runs of `SIZE`. Never changed."""

    names: dict[str, V]


class Names(Struct, Generic[V], frozen=True):
    """What was recorded, by name. The first record of a name stays; adding makes a new value."""

    closed: tuple[Part[V], ...] = ()
    tail: dict[str, V] = {}

    def __len__(self) -> int:
        return sum(len(part.names) for part in self.closed) + len(self.tail)

    def items(self) -> Iterator[tuple[str, V]]:
        """Names and what was recorded, in the order in which they were added."""
        for part in self.closed:
            yield from part.names.items()
        yield from self.tail.items()

    def get(self, name: str) -> V | None:
        """What was recorded under the name, or None."""
        if name in self.tail:
            return self.tail[name]
        return next((part.names[name] for part in self.closed if name in part.names), None)

    def add(self, name: str, value: V) -> "Names[V]":
        """With this name too, unless it is there."""
        if name in self.tail or any(name in part.names for part in self.closed):
            return self
        tail = {**self.tail, name: value}
        if len(tail) < SIZE:
            return Names(self.closed, tail)
        return Names(_closed(self.closed, Part(tail)), {})


def of(runs: Sequence[Mapping[str, V]], tail: dict[str, V]) -> Names[V]:
    """Names whose closed runs are these, in the parts that adding them one by one makes."""
    parts: list[Part[V]] = []
    at = 0
    for bit in reversed(range(len(runs).bit_length())):
        if len(runs) >> bit & 1:
            whole: dict[str, V] = {}
            for run in runs[at : at + (1 << bit)]:
                whole.update(run)
            parts.append(Part(whole))
            at += 1 << bit
    return Names(tuple(parts), tail)


def _closed(parts: tuple[Part[V], ...], new: Part[V]) -> tuple[Part[V], ...]:
    """Parts at least halve in size from first to last, so there are few of them."""
    while parts and len(parts[-1].names) <= len(new.names):
        parts, new = parts[:-1], _joined(parts[-1], new)
    return (*parts, new)


def _joined(first: Part[V], second: Part[V]) -> Part[V]:
    """Both as one; what others keep of their runs stays."""
    joined = Part({**first.names, **second.names})
    kept = runs_of(first)
    runs_of(joined).extend(kept)
    if len(kept) * SIZE == len(first.names):
        runs_of(joined).extend(runs_of(second))
    return joined


def runs_of(part: Part[V]) -> list[Any]:
    """What is kept of the part's first runs by whoever stores them, in their order."""
    kept: list[Any] = vars(part).setdefault("runs", [])
    return kept
