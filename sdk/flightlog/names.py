"""A map from names to what was recorded under them first, shared by old and new states."""

from typing import Generic, TypeVar

from msgspec import Struct

SIZE = 32  # names in the part that is copied when one is added

V = TypeVar("V")


class Names(Struct, Generic[V], frozen=True):
    """What was recorded, by name. The first record of a name stays; adding makes a new value."""

    closed: tuple[dict[str, V], ...] = ()
    tail: dict[str, V] = {}

    def __len__(self) -> int:
        return sum(map(len, self.closed)) + len(self.tail)

    def get(self, name: str) -> V | None:
        """What was recorded under the name, or None."""
        if name in self.tail:
            return self.tail[name]
        return next((part[name] for part in self.closed if name in part), None)

    def add(self, name: str, value: V) -> "Names[V]":
        """With this name too, unless it is there."""
        if name in self.tail or any(name in part for part in self.closed):
            return self
        tail = {**self.tail, name: value}
        if len(tail) < SIZE:
            return Names(self.closed, tail)
        return Names(_closed(self.closed, tail), {})


def _closed(parts: tuple[dict[str, V], ...], new: dict[str, V]) -> tuple[dict[str, V], ...]:
    """Parts at least halve in size from first to last, so there are few of them."""
    while parts and len(parts[-1]) <= len(new):
        parts, new = parts[:-1], {**parts[-1], **new}
    return (*parts, new)
