"""States in pieces: what comes back is the state, and a changed state shares what it can."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog import names, state
from flightlog.cache import cut as cuts
from flightlog.cache import piece, session_cut
from flightlog.cache.cut import FAN, Cut, Cutter, Known, Long
from flightlog.messages import providers, segment
from flightlog.state import SessionState
from flightlog.wire import carry
from tests.sdk.tale import Tale, begun
from tests.sdk.wild import tales


def whole(cut: Cut) -> dict[str, bytes]:
    return {name: cut.pieces[name] for name in cut.pieces}


def stored(cut: Cut) -> Cut:
    """As it comes back: nothing but bytes."""
    return Cut(cut.state, cut.roots, whole(cut))


def again(found: SessionState) -> SessionState:
    return session_cut.join(stored(session_cut.cut(found)))


def lengthened(length: int) -> tuple[Long, Cut, list[str]]:
    def run(at: int) -> list[bytes]:
        return [b'{"at":%d}' % at]

    cutter = Cutter()
    made: list[Known] = [cuts.known(piece.listed(run(at))) for at in range(length)]
    found = cutter.long(made, run, [b"{}"])
    return found, stored(cutter.cut(b"")), [name for name, _ in made]


@pytest.mark.parametrize("length", [0, 1, FAN - 1, FAN, FAN + 1, FAN**2, FAN**2 + FAN + 1, 5_000])
def test_a_long_list_comes_back_in_order_and_its_head_stays_short(length: int) -> None:
    found, cut, runs = lengthened(length)
    assert cuts.runs(found, cut) == runs
    assert all(len(level) < FAN for level in found.levels)
    assert len(cut.roots) <= (FAN - 1) * len(found.levels)


@given(st.integers(0, 700), st.integers(0, 40))
@settings(max_examples=30)
def test_a_longer_list_keeps_every_full_node_of_the_shorter(length: int, more: int) -> None:
    _, short, _ = lengthened(length)
    _, longer, _ = lengthened(length + more)
    assert short.pieces.keys() <= longer.pieces.keys()


@given(tales(most=60, careless=True), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_any_state_comes_back_and_folds_on_to_the_same_bytes(tale: Tale, chance: Random) -> None:
    with pytest.MonkeyPatch.context() as small:
        small.setattr(segment, "SIZE", 3)
        small.setattr(names, "SIZE", 2)
        small.setattr(piece, "LARGE", 60)
        small.setattr(cuts, "FAN", 2)
        found, slow = state.initial(), state.initial()
        for event in tale.events:
            found, slow = state.apply(found, event), state.apply(slow, event)
            if chance.random() < 0.3:
                found = again(found)
                assert state.encode(found) == state.encode(slow)
        ours, fresh = session_cut.cut(found), session_cut.cut(slow)
        assert (ours.state, ours.roots) == (fresh.state, fresh.roots)
        assert whole(ours) == whole(fresh)


def named(tale: Tale, count: int, size: int) -> None:
    for at in range(count):
        tale.add("value_recorded", {"name": f"{len(tale.events)} {at}", "value": "v" * size})


@pytest.mark.parametrize("count", [0, 31, 32, 33, 95, 96, 500, 1_024])
def test_names_come_back_in_the_parts_that_adding_makes(count: int) -> None:
    tale = begun()
    named(tale, count, 100)
    assert again(tale.state).values == tale.state.values
    assert state.encode(again(tale.state)) == state.encode(tale.state)


def test_a_hundred_events_more_are_a_few_pieces_more() -> None:
    tale = begun()
    seen = set[str]()
    for _ in range(30):
        named(tale, 50, 1_000)
        for _ in range(50):
            tale.user("x" * 1_000)
        tale.state = again(tale.state)
        cut = session_cut.cut(tale.state)
        new = cut.pieces.keys() - seen
        assert len(new) <= 6
        assert len(seen - cut.pieces.keys()) == 0
        seen |= new


def test_what_is_large_and_stays_is_one_piece_through_all_changes() -> None:
    tale = begun()
    system = "You are. " * 2_000
    asked = {"model": "m", "system": system, "messages": [{"role": "user", "content": "hi"}]}
    tale.request(asked)
    tale.add("checkpoint", {"label": "l", "data": "d" * 9_000})
    tale.user("u" * 9_000)
    first = session_cut.cut(tale.state)
    assert sorted(len(raw) > piece.LARGE for raw in whole(first).values()) == [True] * 3
    assert len(first.state) < 2_000
    tale.user("more")
    assert session_cut.cut(tale.state).pieces.keys() == first.pieces.keys()
    assert again(tale.state).params == tale.state.params


def test_a_missing_piece_is_an_error_and_no_other_state() -> None:
    tale = begun()
    named(tale, 100, 6_000)
    for _ in range(200):
        tale.user("x" * 6_000)
    good = stored(session_cut.cut(tale.state))
    for name in good.pieces:
        left = {each: raw for each, raw in good.pieces.items() if each != name}
        with pytest.raises(LookupError):
            session_cut.join(Cut(good.state, good.roots, left))


@given(tales(most=60, careless=True))
@settings(max_examples=100, deadline=None)
def test_a_state_that_comes_back_has_the_messages_that_its_lines_say(tale: Tale) -> None:
    with pytest.MonkeyPatch.context() as small:
        small.setattr(segment, "SIZE", 3)
        found = state.initial()
        for each in tale.events:
            found = state.apply(found, each)
        for name in ("anthropic", "openai-chat"):
            lines = [carry.unpack(line) for line in found.lines(providers.get(name))]
            assert again(found).messages(name) == lines


def test_a_segment_that_holds_no_entries_does_not_come_back() -> None:
    tale = begun()
    for n in range(segment.SIZE):
        tale.user(f"message {n}")
    cut = stored(session_cut.cut(tale.state))
    odd = {name: raw.replace(b'"user"', b'"none"') for name, raw in cut.pieces.items()}
    with pytest.raises(ValueError, match="Invalid value"):
        session_cut.join(Cut(cut.state, cut.roots, odd))
