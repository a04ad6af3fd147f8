"""A piece: bytes that never change, named by their SHA-256, which snapshots share.

A `+` before the name says that the piece is a JSON array, and that the strings among its items are
the names of further pieces.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import Raw, Struct

from flightlog.blobs import zstd

LARGE = 4096  # bytes from which an item is a piece of its own: a name costs 70, and is no news
MOST = 64 << 20  # bytes in a piece: no message, so no item of one, can be larger
_WORTH = 1024  # bytes from which compressing is tried
_PLAIN, _ZSTD = b"\0", b"\1"
_CHECK = 16  # bytes of a SHA-256: against accidents, as whoever may write here may write anything

_encode = msgspec.json.Encoder().encode
_items: msgspec.json.Decoder[list[Raw]] = msgspec.json.Decoder(list[Raw])
_names: msgspec.json.Decoder[list[str | dict[str, Raw] | list[Raw]]] = msgspec.json.Decoder(
    list[str | dict[str, Raw] | list[Raw]]
)


class Piece(Struct, frozen=True):
    """A piece, and those that it alone names."""

    name: str
    raw: bytes
    parts: tuple["Piece", ...] = ()


def leaf(raw: bytes) -> Piece:
    """A piece that names no other."""
    return Piece(hashlib.sha256(raw).hexdigest(), raw)


def node(names: Iterable[str]) -> Piece:
    """A piece that names others, and holds nothing else."""
    raw = _encode(list(names))
    return Piece("+" + hashlib.sha256(raw).hexdigest(), raw)


def listed(items: Iterable[bytes]) -> Piece:
    """A piece that lists items, none of them a JSON string; the large ones are pieces of it."""
    parts: list[Piece] = []
    written: list[Raw] = []
    for item in items:
        if len(item) < LARGE:
            written.append(Raw(item))
        else:
            parts.append(leaf(item))
            written.append(Raw(_encode(parts[-1].name)))
    raw = _encode(written)
    name = hashlib.sha256(raw).hexdigest()
    return Piece("+" + name if parts else name, raw, tuple(parts))


def items(name: str, pieces: Mapping[str, bytes]) -> list[Raw]:
    """The items of a piece that `listed` made. Raises `KeyError` if one is missing."""
    found = _items.decode(pieces[name])
    return found if is_leaf(name) else [_whole(item, pieces) for item in found]


def _whole(item: Raw, pieces: Mapping[str, bytes]) -> Raw:
    raw = bytes(item)
    return Raw(pieces[raw[1:-1].decode()]) if raw.startswith(b'"') else item


def is_leaf(name: str) -> bool:
    """Whether a piece names no other."""
    return not name.startswith("+")


def children(raw: bytes) -> list[str]:
    """The pieces that one with a `+` names. Raises `msgspec.DecodeError` for what is none."""
    return [each for each in _names.decode(raw) if isinstance(each, str)]


def pack(raw: bytes) -> bytes:
    """As it is stored: compressed where that makes it smaller."""
    if len(raw) >= _WORTH:
        frame = zstd.compress(raw)
        if len(frame) < len(raw):
            return _ZSTD + frame
    return _PLAIN + raw


def unpack(value: bytes) -> bytes:
    """What `pack` was given. Raises `ValueError` for anything else."""
    if value.startswith(_PLAIN):
        return value[1:]
    if not value.startswith(_ZSTD):
        raise ValueError("neither plain nor zstd")
    return zstd.decompress(value[1:], most=MOST)


def stored(name: str, raw: bytes) -> bytes:
    """A piece as it is stored: packed, behind a checksum of that and of its name."""
    packed = pack(raw)
    return _checksum(name, packed) + packed


def holds(name: str, value: bytes) -> bool:
    """Whether this is what `stored` made of that piece; it need not be unpacked to know."""
    return value[:_CHECK] == _checksum(name, value[_CHECK:])


class Stored(Mapping[str, bytes]):
    """Pieces by name, in the form in which they are stored; each read unpacks one.

    So a conversation of 10 MB is never there twice, as JSON and as what is made of it: to be given
    that much memory costs more (10 ms) than to unpack it again (5 ms).
    """

    def __init__(self, values: Mapping[str, bytes]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> bytes:
        return unpack(self._values[name][_CHECK:])

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values


def _checksum(name: str, packed: bytes) -> bytes:
    return hashlib.sha256(name.encode() + packed).digest()[:_CHECK]
