"""A state in pieces: a small head that changes each time, and what it shares with the one before.

A long list is cut into runs of equal length, from its beginning. Runs are pieces; `FAN` of them in
a row are named by a node, `FAN` nodes by a higher one, and so on: the head names what is left over
on each level, fewer than `FAN`. So nothing that is full is ever written again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Raw, Struct

from flightlog.cache import piece
from flightlog.cache.piece import Piece

FAN = 16  # names in a node, and at most on a level of the head: 15 x 67 bytes

Items = Callable[[int], list[bytes]]  # the items of a list's n-th run, as JSON
Known = tuple[str, tuple[str, ...]]  # a run's name, and the pieces that it names

_encode = msgspec.json.Encoder().encode


class Cut(Struct, frozen=True):
    """A state as its projection stores it: `roots` are the pieces that `state` speaks of.

    `pieces` are all that can be reached from there; they may be made only when they are asked for.
    """

    state: bytes
    roots: tuple[str, ...] = ()
    pieces: Mapping[str, bytes] = {}


class Long(Struct, frozen=True):
    """A long list in a head: the names of what is left over on each level, and its open end."""

    levels: list[list[int]] = []
    tail: list[Raw] = []


class Cutter:
    """Collects the pieces of a state. A head speaks of a piece by its place in `roots`."""

    def __init__(self) -> None:
        self.roots: list[str] = []
        self._places: dict[str, int] = {}
        self._made: dict[str, bytes] = {}
        self._runs: dict[str, tuple[Items, int]] = {}

    def cut(self, state: bytes) -> Cut:
        """The state in pieces; `state` speaks of all of them."""
        return Cut(state, tuple(self.roots), _Pieces(self._made, self._runs))

    def items(self, items: Sequence[bytes]) -> list[Raw]:
        """Items, none of them a JSON number; a large one becomes its place."""
        return [Raw(item) if len(item) < piece.LARGE else self._item(item) for item in items]

    def long(self, runs: Sequence[Known], items: Items, tail: Sequence[bytes]) -> Long:
        """A long list whose `runs` are known, and can be made again by `items`."""
        for at, (name, parts) in enumerate(runs):
            self._runs[name] = (items, at)
            for part in parts:
                self._runs[part] = (items, at)
        names = [name for name, _ in runs]
        levels = [[self._root(name) for name in left] for left in self._levels(names)]
        return Long(levels, self.items(tail))

    def _levels(self, names: list[str]) -> Iterator[list[str]]:
        while names:
            whole = len(names) // FAN * FAN
            yield names[whole:]
            nodes = [piece.node(names[at : at + FAN]) for at in range(0, whole, FAN)]
            self._made.update((each.name, each.raw) for each in nodes)
            names = [each.name for each in nodes]

    def _item(self, item: bytes) -> Raw:
        made = piece.leaf(item)
        self._made[made.name] = made.raw
        return Raw(_encode(self._root(made.name)))

    def _root(self, name: str) -> int:
        if name not in self._places:
            self._places[name] = len(self.roots)
            self.roots.append(name)
        return self._places[name]


class _Pieces(Mapping[str, bytes]):
    """Runs are made from the state again when they are asked for: most are stored already."""

    def __init__(self, made: dict[str, bytes], runs: dict[str, tuple[Items, int]]) -> None:
        self._made, self._runs = made, runs

    def __getitem__(self, name: str) -> bytes:
        if name in self._made:
            return self._made[name]
        items, at = self._runs[name]
        run = piece.listed(items(at))
        return next(each.raw for each in (run, *run.parts) if each.name == name)

    def __iter__(self) -> Iterator[str]:
        yield from self._made
        yield from (name for name in self._runs if name not in self._made)

    def __len__(self) -> int:
        return len(self._made.keys() | self._runs.keys())


def known(run: Piece) -> Known:
    """What is kept of a run that was made: not its bytes, which its state holds anyway."""
    return run.name, tuple([part.name for part in run.parts])


def items(found: Sequence[Raw], cut: Cut) -> list[Raw]:
    """What `Cutter.items` was given. Raises `LookupError` if a piece is missing."""
    return [_item(bytes(each), cut) for each in found]


def runs(found: Long, cut: Cut) -> list[str]:
    """The names of a long list's runs, from the first on."""
    names: list[str] = []
    for level in reversed(found.levels):
        below = [child for name in names for child in piece.children(cut.pieces[name])]
        names = below + [cut.roots[place] for place in level]
    return names


def _item(raw: bytes, cut: Cut) -> Raw:
    return Raw(cut.pieces[cut.roots[int(raw)]]) if raw[:1].isdigit() else Raw(raw)
