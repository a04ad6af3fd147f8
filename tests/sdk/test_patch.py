"""Patches: a value told by a known one is the same value, byte for byte, or there is no patch."""

import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from flightlog.messages import params, patch
from flightlog.wire import carry
from flightlog.wire.chunk import Blob

LONG = "rule é " * 100
texts = st.text(alphabet=st.sampled_from('aé€😀\\"\n'), max_size=20)


def written(value: object) -> bytes:
    return msgspec.json.encode(value)


@given(texts, texts, texts, texts, st.booleans())
def test_what_is_told_by_a_known_value_comes_back_byte_for_byte(
    before: str, old: str, new: str, behind: str, listed: bool
) -> None:
    known, value = [f"{before}{LONG}{each}{LONG}{behind}" for each in (old, new)]
    one, other = (written([known]), written([value])) if listed else map(written, (known, value))
    made = patch.of(3, one, other)
    assert made is not None
    assert made[0] == 3
    assert patch.applied(made, one) == other
    assert len(written(made)) < len(other) / 2


def test_what_has_little_in_common_with_it_or_much_between_is_told_whole() -> None:
    assert patch.of(0, written("a" * 1_000), written("b" * 1_000)) is None
    short, much = written("a" * (patch.LEAST - 3)), "x" * (patch.MOST + 1)
    assert patch.of(0, short, short) is None
    assert patch.of(0, written(LONG), written(LONG + much)) is None
    assert patch.of(0, written(LONG), written(LONG + much[1:])) is not None


def test_the_known_value_that_saves_most_is_taken() -> None:
    known = [Raw(written(each)) for each in (LONG, "b" + LONG * 2, "")]
    twice, once = params.patch_of(Raw(written("c" + LONG * 2)), known), Raw(written("c" + LONG))
    assert twice is not None
    assert twice[0] == zlib.crc32(known[1])
    alone = params.patch_of(once, [known[2], known[0]])
    assert alone is not None
    assert alone[0] == zlib.crc32(known[0])
    assert params.patch_of(once, [known[2]]) is None


@pytest.mark.parametrize(
    "mark", [float("nan"), b"raw", Blob(digest="0" * 64, size=1, kind="bytes")]
)
def test_a_mark_is_never_part_of_a_patch(mark: object) -> None:
    plain, marked = carry.pack([LONG, 1]), carry.pack([LONG, mark])
    assert patch.of(0, bytes(plain), bytes(marked)) is None
    assert patch.of(0, bytes(marked), bytes(plain)) is None
    hidden = (0, len(LONG), 0, bytes(marked)[len(LONG) :].decode())
    with pytest.raises(patch.UNFIT, match="mark"):
        patch.applied(hidden, bytes(marked))


@pytest.mark.parametrize(
    "made", [(0, -1, 2, ""), (0, 1, -2, ""), (0, 5, 5, ""), (0, 2, 0, ""), (0, 3, 3, '"')]
)
def test_a_patch_of_another_value_is_refused(made: patch.Patch) -> None:
    with pytest.raises(patch.UNFIT):
        patch.applied(made, b'"abcdef"')


def test_a_field_has_its_last_values_at_hand_the_latest_first() -> None:
    a, b, c, d, e = (Raw(written(each * params.LEAST)) for each in "abcde")
    small = Raw(b"1")
    found = params.remembered(UNSET, {"system": a, "top_k": small}, {"system": b})
    assert found == {"system": (a,)}
    for had, have in ((b, c), (c, d), (d, e)):
        found = params.remembered(found, {"system": had}, {"system": have})
    assert found == {"system": (d, c, b)}
    assert params.known({"system": e}, found, "system") == [e, d, c, b]
    assert params.known({}, found, "tools") == []
    back = params.remembered(found, {"system": e}, {"system": d})
    assert back == {"system": (e, c, b)}


def test_a_patch_that_does_not_fit_leaves_its_field_out() -> None:
    value = Raw(written(LONG))
    fits, astray = (zlib.crc32(value), len(bytes(value)), 0, ""), (7, 1, 1, "")
    made = params.patched({"a": fits, "b": astray}, lambda _: [value])
    assert made == {"a": value}
