"""Pieces: what is stored is what was packed, or nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.blobs import zstd
from flightlog.cache import piece


@given(st.binary(max_size=3_000), st.integers(0, 3))
def test_what_was_packed_comes_back(raw: bytes, times: int) -> None:
    assert piece.unpack(piece.pack(raw * 10**times)) == raw * 10**times


def test_only_what_shrinks_is_compressed() -> None:
    assert len(piece.pack(b"the same again. " * 1_000)) < 200
    noise = zstd.compress(bytes(range(256)) * 3)
    assert piece.pack(noise) == b"\0" + noise


def test_a_piece_that_was_stored_comes_back_by_its_name() -> None:
    raw = b"some text, and some more. " * 100
    name = piece.leaf(raw).name
    value = piece.stored(name, raw)
    assert piece.holds(name, value)
    pieces = piece.Stored({name: value})
    assert (name in pieces, dict(pieces)) == (True, {name: raw})


@pytest.mark.parametrize("value", [b"", b"\0", b"\1", b"\2raw", b"raw", b"\1raw", b"\0raw"])
def test_what_was_not_stored_as_the_piece_of_that_name_is_not_it(value: bytes) -> None:
    assert not piece.holds(piece.leaf(b"raw").name, value)
    assert not piece.holds(piece.leaf(b"raw").name, piece.stored(piece.leaf(b"war").name, b"war"))


def test_a_stored_piece_cut_or_changed_anywhere_or_with_more_behind_it_is_not_it() -> None:
    raw = b"some text, and some more. " * 100
    name = piece.leaf(raw).name
    value = piece.stored(name, raw)
    assert not any(piece.holds(name, value[:at]) for at in range(len(value)))
    changed = [value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :] for at in range(len(value))]
    assert not any(piece.holds(name, each) for each in changed)
    assert not piece.holds(name, value + b"\0")


def test_a_frame_that_holds_more_than_any_piece_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = b"\1" + zstd.compress(bytes(200_000))
    assert len(piece.unpack(bomb)) == 200_000
    monkeypatch.setattr(piece, "MOST", 199_999)
    with pytest.raises(ValueError, match="199999"):
        piece.unpack(bomb)


def test_large_items_of_a_list_are_pieces_of_their_own() -> None:
    small, large = b'{"a":1}', b'{"a":"' + b"x" * piece.LARGE + b'"}'
    alone, mixed = piece.listed([small, small]), piece.listed([small, large, small])
    assert piece.is_leaf(alone.name)
    assert alone.raw == b'[{"a":1},{"a":1}]'
    assert piece.children(mixed.raw) == [piece.leaf(large).name]
    pieces = {each.name: each.raw for each in (alone, mixed, *mixed.parts)}
    assert [bytes(item) for item in piece.items(mixed.name, pieces)] == [small, large, small]
    assert [bytes(item) for item in piece.items(alone.name, pieces)] == [small, small]
