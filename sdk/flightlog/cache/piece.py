"""A piece: bytes that never change, named by their SHA-256, which snapshots share.

A `+` before the name says that the piece is a JSON array, and that the strings among its items are
the names of further pieces.
"""

import hashlib
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Raw, Struct

from flightlog.blobs import zstd

LARGE = 4096  # bytes from which an item is a piece of its own: a name costs 70, and is no news
MOST = 64 << 20  # bytes in a piece: no message, so no item of one, can be larger
_WORTH = 1024  # bytes from which compressing is tried
_PLAIN, _ZSTD = b"\0", b"\1"

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


def opened(name: str, value: bytes | None) -> bytes | None:
    """The piece in a stored value; None if it is missing, or is not the one of that name."""
    try:
        raw = unpack(value) if value is not None else None
    except ValueError:
        return None
    if raw is None or hashlib.sha256(raw).hexdigest() != name.removeprefix("+"):
        return None
    return raw
