"""Entries and names behave like a plain list and a plain dict, and old values never change."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from flightlog.messages.segment import SIZE, Entries, Entry, Said, Segment, of
from flightlog.names import Names

COUNTS = st.integers(0, 3 * SIZE + 1)
EDGES = [0, 1, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE - 1, 2 * SIZE, 2 * SIZE + 7]


def said(count: int, start: int = 0) -> list[Entry]:
    return [Said(start + at, Raw(b"1")) for at in range(count)]


@pytest.mark.parametrize("count", EDGES)
def test_entries_can_be_counted_walked_and_picked_like_a_list(count: int) -> None:
    model = said(count)
    found = of(model)
    assert len(found) == count
    assert list(found) == model
    assert list(reversed(found)) == model[::-1]
    assert [found[at] for at in range(count)] == model
    assert [len(segment.entries) for segment in found.closed] == [SIZE] * (count // SIZE)


@given(COUNTS, COUNTS, st.integers(0, 2 * SIZE))
def test_entries_are_cut_and_joined_like_a_list(count: int, at: int, more: int) -> None:
    model, new = said(count), said(more, start=1000)
    found = of(model)
    assert list(found.take(at)) == model[:at]
    assert list(found.after(at)) == model[at:]
    assert list(found.insert(min(at, count), *new)) == model[:at] + new + model[at:]
    assert list(found.add(*new)) == model + new
    if at < count:
        assert list(found.put(at, new[0] if new else model[0]))[at] == (new or model)[0]
    assert list(found) == model


def test_one_by_one_and_all_at_once_give_the_same_segments() -> None:
    model, found = said(3 * SIZE), Entries()
    for entry in model:
        found = found.add(entry)
    assert found == of(model)


def test_adding_shares_the_segments_that_are_there() -> None:
    found = of(said(2 * SIZE))
    assert found.add(*said(5)).closed[0] is found.closed[0]
    assert found.take(SIZE + 3).closed[0] is found.closed[0]


def test_names_keep_the_first_record_and_every_older_value() -> None:
    chance, model, found = random.Random(7), dict[str, int](), Names[int]()
    older = list[tuple[Names[int], int]]()
    for value in range(1000):
        name = f"n{chance.randrange(600)}"
        model.setdefault(name, value)
        older.append((found, len(found)))
        found = found.add(name, value)
    assert {name: found.get(name) for name in model} == model
    assert list(found.items()) == list(model.items())
    assert len(found) == len(model)
    assert found.get("n600") is None
    assert len(found.closed) < 10
    assert all(len(old) == count for old, count in older)


def test_a_segment_of_json_is_the_one_that_was_written() -> None:
    made = of(said(SIZE)).closed[0]
    read = Segment(Raw(made.written))
    assert read == made
    assert msgspec.json.encode(read) == msgspec.json.encode(made)
    assert read.entries is read.entries
    assert msgspec.json.decode(msgspec.json.encode(read), type=Segment) == made


def test_json_that_is_no_entries_is_told_by_who_reads_it() -> None:
    with pytest.raises(msgspec.DecodeError):
        _ = Segment(Raw(b'[{"type":"user"}]')).entries
