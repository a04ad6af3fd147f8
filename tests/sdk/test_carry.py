"""Values that JSON cannot carry travel marked and come back equal; nothing is changed silently."""

import enum
import json
import math
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.errors import InvalidEvent, InvalidValue
from flightlog.wire import carry
from flightlog.wire.chunk import Blob

TEXT = st.text(alphabet=st.characters(codec=None, categories=None))  # surrogates too
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.binary(max_size=40)
KEYS = TEXT | st.just(carry.MARK) | st.integers() | st.binary(max_size=8) | st.tuples(TEXT)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


class Mood(enum.StrEnum):
    CALM = "calm"


class Rank(enum.IntEnum):
    HIGH = 3


class Model:
    """What the provider SDKs hand out: a pydantic model, as far as we look at it."""

    def __init__(self, **fields: object) -> None:
        self.fields = fields

    def model_dump(self, *, mode: str, exclude_unset: bool) -> dict[str, object]:
        assert (mode, exclude_unset) == ("json", True)
        return self.fields


def there_and_back(value: object) -> Any:
    return carry.unpack(carry.pack(value))


def nested(levels: int, *, as_dict: bool) -> object:
    value: object = "deep"
    for _ in range(levels):
        value = {"k": value} if as_dict else [value]
    return value


def same(left: Any, right: Any) -> bool:
    """Equality that also tells 1 from True and 1.0, 0.0 from -0.0, and NaN equal to itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        signs = math.copysign(1, left) == math.copysign(1, right)
        return (left == right and signs) or (math.isnan(left) and math.isnan(right))
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        pairs = zip(left.items(), right.items(), strict=False)
        return len(left) == len(right) and all(a == b and same(x, y) for (a, x), (b, y) in pairs)
    return bool(left == right)


@given(VALUES)
def test_every_value_comes_back_equal_and_of_the_same_type(value: object) -> None:
    assert same(there_and_back(value), value)


@given(VALUES)
def test_what_is_packed_is_strict_json_that_any_language_reads(value: object) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    packed = bytes(carry.pack(value)).decode("utf-8", "strict")
    json.loads(packed, parse_constant=refuse)


@given(VALUES)
def test_packing_is_deterministic(value: object) -> None:
    assert carry.pack(value) == carry.pack(value)


@pytest.mark.parametrize(
    ("value", "packed"),
    [
        (math.inf, b'{"$flightlog":"float","value":"inf"}'),
        (-math.inf, b'{"$flightlog":"float","value":"-inf"}'),
        (math.nan, b'{"$flightlog":"float","value":"nan"}'),
        (-0.0, b"-0.0"),
        (b"\x00\xff", b'{"$flightlog":"bytes","value":"AP8="}'),
        ("\ud800", b'{"$flightlog":"str","value":"7aCA"}'),
        (2**64, b'{"$flightlog":"int","value":"18446744073709551616"}'),
        (2**64 - 1, b"18446744073709551615"),
        (-(2**63) - 1, b'{"$flightlog":"int","value":"-9223372036854775809"}'),
        ({1: "a"}, b'{"$flightlog":"dict","value":[[1,"a"]]}'),
        ({carry.MARK: 1}, b'{"$flightlog":"dict","value":[["$flightlog",1]]}'),
    ],
)
def test_marks_are_written_as_the_wire_contract_says(value: object, packed: bytes) -> None:
    assert bytes(carry.pack(value)) == packed


def test_integers_of_any_length_come_back() -> None:
    limit = sys.get_int_max_str_digits()
    for value in (10 ** (limit - 1), -(10 ** (2 * limit)), 7 ** (10 * limit)):
        assert there_and_back(value) == value


def test_a_key_that_is_a_tuple_comes_back_as_a_tuple() -> None:
    assert there_and_back({(1, (b"x", "y")): [1]}) == {(1, (b"x", "y")): [1]}


def test_a_key_that_holds_a_lone_surrogate_comes_back() -> None:
    assert there_and_back({"\udcff": {"\udcfe": 1}}) == {"\udcff": {"\udcfe": 1}}


def test_tuples_become_lists_and_views_become_bytes() -> None:
    assert there_and_back({"t": (1, (2,)), "b": [bytearray(b"a"), memoryview(b"abcd")[::2]]}) == {
        "t": [1, [2]],
        "b": [b"a", b"ac"],
    }


def test_members_of_enumerations_are_their_values() -> None:
    assert there_and_back({"mood": Mood.CALM, "rank": Rank.HIGH, Mood.CALM: 1}) == {
        "mood": "calm",
        "rank": 3,
        "calm": 1,
    }


def test_provider_models_are_recorded_as_their_own_json() -> None:
    message = Model(role="assistant", content=[Model(type="text", text="hi")], score=math.nan)
    found = there_and_back([message])[0]
    assert found["content"] == [{"type": "text", "text": "hi"}]
    assert math.isnan(found["score"])


@pytest.mark.parametrize("as_dict", [True, False], ids=["dicts", "lists"])
def test_values_nest_to_the_stated_depth_and_not_one_level_more(as_dict: bool) -> None:
    deepest = nested(carry.MAX_DEPTH, as_dict=as_dict)
    assert there_and_back(deepest) == deepest
    for levels in (carry.MAX_DEPTH + 1, 1_000, 100_000):
        with pytest.raises(InvalidValue, match="nested deeper than 256 levels") as refused:
            carry.pack(nested(levels, as_dict=as_dict), where="arguments")
        assert len(str(refused.value)) < 200


def test_a_deep_stack_of_the_caller_is_no_crash() -> None:
    def from_below(frames: int) -> object:
        if frames:
            return from_below(frames - 1)
        return carry.pack(nested(carry.MAX_DEPTH, as_dict=True))

    with pytest.raises(InvalidValue, match="nested deeper"):
        from_below(sys.getrecursionlimit() - 300)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [1, {"b": object()}]}, r"arguments\.a\[1\]\.b"),
        ({1, 2}, "arguments"),
        (1j, "arguments"),
        ({"x" * 500: object()}, "arguments"),
    ],
)
def test_a_value_without_json_form_is_refused_by_its_place(value: object, place: str) -> None:
    with pytest.raises(InvalidValue, match=f"^{place}.* cannot be recorded: .* has no JSON form"):
        carry.pack(value, where="arguments")


def test_a_refusal_never_shows_the_value() -> None:
    class Secret:
        def __repr__(self) -> str:
            return "hunter2"

    with pytest.raises(InvalidValue) as refused:
        carry.pack({"password": ["hunter2", Secret()]})
    assert "hunter2" not in str(refused.value)


def masked(text: str) -> str:
    return text.replace("secret", "***")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("a secret", "a ***"),
        ({"secret": ["secret", {"x": "secret"}]}, {"secret": ["***", {"x": "***"}]}),
        ({1: "secret"}, {1: "***"}),
        (Model(text="secret"), {"text": "***"}),
        ("secret \ud800", "*** \ud800"),
        ([b"secret", 1, None], [b"secret", 1, None]),
    ],
)
def test_redact_maps_every_string_leaf_and_no_key(value: object, found: object) -> None:
    assert carry.unpack(carry.pack(value, redact=masked)) == found


@given(VALUES)
def test_redacting_what_is_packed_already_equals_redacting_it_first(value: object) -> None:
    at_once = carry.pack(value, redact=str.upper)
    assert carry.pack(carry.pack(value), redact=str.upper) == at_once


def test_packed_values_are_embedded_as_they_are() -> None:
    inner = carry.pack({"n": math.nan, 2: b"x"})
    outer = carry.pack({"inner": inner})
    assert bytes(inner) in bytes(outer)
    assert carry.unpack(outer)["inner"][2] == b"x"


@pytest.mark.parametrize(
    "mark",
    [
        {"$flightlog": "colour", "value": "red"},
        {"$flightlog": "float", "value": "eleven"},
        {"$flightlog": "int", "value": 3},
        {"$flightlog": "int", "value": "3x"},
        {"$flightlog": "bytes", "value": "no base64!"},
        {"$flightlog": "str", "value": "////"},
        {"$flightlog": "dict", "value": [[1]]},
        {"$flightlog": "dict", "value": [[{"a": 1}, 2]]},
        {"$flightlog": ["float"], "value": "1"},
        {"$flightlog": None},
    ],
)
def test_a_mark_that_is_not_ours_is_shown_raw_and_survives_a_round_trip(mark: object) -> None:
    assert carry.unpack(json.dumps({"m": mark}).encode()) == {"m": mark}
    assert there_and_back(mark) == mark


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b'"\\ud800"', "\ud800"),
        (b"[1e999]", [math.inf]),
        (b"[NaN]", None),
        (b"1" * 40, int("1" * 40)),
    ],
)
def test_json_of_other_producers_is_read(written: bytes, read: object) -> None:
    found = carry.unpack(written)
    assert found == read or math.isnan(found[0])


@pytest.mark.parametrize(
    "written", [b"[" * 100_000 + b"]" * 100_000, b"{", b"", b'"\xff"', b"1" * 9999]
)
def test_what_cannot_be_read_at_all_is_one_clear_error(written: bytes) -> None:
    with pytest.raises(InvalidEvent, match="payload cannot be read"):
        carry.unpack(written)


def test_a_fast_path_and_the_marked_path_read_the_same() -> None:
    plain: Callable[[bytes], Any] = msgspec.json.decode
    for value in ({"a": 1}, ["$flightlo"], {"text": "$flightlog"}):
        raw = carry.pack(value)
        assert carry.unpack(raw) == plain(bytes(raw)) == value


@pytest.mark.parametrize(
    "odd", [{"size": -1}, {"size": 2**50}, {"digest": "0" * 63}, {"kind": "film"}, {"index": "x"}]
)
def test_what_nobody_would_take_for_a_reference_is_not_written_as_one(odd: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"digest": "0" * 64, "size": 1, **odd}
    blob = Blob(**fields)
    with pytest.raises(InvalidValue, match="no reference to a blob"):
        carry.pack({"a": [blob]})
