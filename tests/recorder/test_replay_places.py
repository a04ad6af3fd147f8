"""Known places: few, spread over the log, and bounded in what they hold."""

from flightlog.event import Event
from flightlog.messages.segment import Said
from flightlog.reading.chain import Head
from flightlog.snapshot import SESSION
from flightlog.state import SessionState
from flightlog_recorder.replay.places import Places
from flightlog_recorder.replay.source import Place
from tests.handmade import follow

KIB = 1 << 10
BOUND = 300 * KIB


def states(events: list[Event]) -> list[SessionState]:
    found = [SESSION.initial()]
    for event in events:
        found.append(SESSION.apply(found[-1], event))
    return found[1:]


def said(count: int, *, every: int | None = None) -> list[Event]:
    """Messages of 1 KiB; the context begins anew with a summary of 20 KiB, `every` so many."""
    events: list[Event] = []
    for n in range(1, count + 1):
        last = events[-1] if events else None
        if every and n % every == 0:
            summary = {"summary": f"{n} " + "s" * 20 * KIB, "keep_from": n}
            events.append(follow(last, type="compact", payload=summary))
        else:
            content = {"content": f"{n} " + "x" * KIB}
            events.append(follow(last, type="user_message", payload=content))
    return events


def kept(found: list[SessionState], places: Places) -> list[SessionState]:
    """What is kept of these states, each offered as it comes."""
    for state in found:
        places.keep(Place(Head(seq=state.seq), state))
    seqs = {places.before(seq).head.seq for seq in range(len(found) + 1)}
    return [state for state in found if state.seq in seqs]


def contexts(found: list[SessionState]) -> list[int]:
    """The bytes of each state's context."""
    return [
        sum(len(bytes(entry.content)) for entry in state.entries if isinstance(entry, Said))
        for state in found
    ]


def test_known_places_stay_few_and_spread_over_the_log() -> None:
    places = Places(most=16)
    for seq in range(100, 100_001, 100):
        places.keep(Place(Head(seq=seq), SESSION.initial()))
    gaps = [seq - places.before(seq).head.seq for seq in range(0, 100_001, 50)]
    assert max(gaps) <= 2 * 100_000 // 8
    assert places.before(0).head.seq == 0
    assert len({places.before(seq).head.seq for seq in range(0, 100_001, 50)}) <= 16


def test_states_that_share_their_context_are_kept_however_large_it_is() -> None:
    found = states(said(600))
    assert contexts(found)[-1] > 2 * BOUND - 10 * KIB
    places = Places(most=64, most_bytes=BOUND)
    assert len(kept(found, places)) >= 32


def test_states_with_contexts_of_their_own_are_kept_as_far_as_the_bytes_go() -> None:
    found = states(said(600, every=10))
    many, few = Places(most=64), Places(most=64, most_bytes=BOUND)
    assert len(kept(found, many)) >= 32
    held = kept(found, few)
    assert 2 < len(held) <= BOUND // (20 * KIB) + 1
    assert sum(contexts(held)) - max(contexts(held)) <= BOUND
    gaps = [seq - few.before(seq).head.seq for seq in range(601)]
    assert max(gaps) <= 4 * 600 // len(held)


def test_what_was_forgotten_weighs_nothing() -> None:
    places = Places(most=64, most_bytes=BOUND)
    found = states(said(600, every=10))
    first = len(kept(found, places))
    places.forget()
    assert len(places) == 1
    assert len(kept(found, places)) > first // 2
