"""The reader's rule: what counts, what is a stray, and what is damage, on logs made by hand."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog import event
from flightlog.bus.protocol import Message
from flightlog.event import Control, Event
from flightlog.reading.chain import Branch, Chain, Head, Pin
from tests.handmade import SESSION, SUBJECT, Subject, chain, follow, takeover, tombstone

NOTHING = Head()


def read(
    messages: Sequence[Message], head: Head = NOTHING, pins: tuple[Pin, ...] = ()
) -> tuple[list[Event], Chain]:
    """One pass: the events that count, and the chain at its end."""
    followed = Chain(SESSION, head, pins)
    counted = [followed.offer(message, "live") for message in messages]
    return [each for each in counted if isinstance(each, Event)], followed


def settle(messages: Sequence[Message]) -> tuple[list[str], Chain]:
    """Passes until no branch is left: the digests that count, and the chain at its end."""
    pins: tuple[Pin, ...] = ()
    while True:
        try:
            counted, followed = read(messages, pins=pins)
        except Branch as branch:
            if branch.pin in pins:
                raise RuntimeError("the same branch was taken twice") from None
            pins = (*pins, branch.pin)
        else:
            return [each.digest for each in counted], followed


def digests(events: Sequence[Event]) -> list[str]:
    return [each.digest for each in events]


def stored(*messages: Event | Control | bytes, step: int = 1) -> list[Message]:
    subject = Subject(step=step)
    subject.put(*messages)
    return subject.messages


def owned(length: int, *, number: int = 1) -> list[Event]:
    """A session's start by writer `number`, and notes up to `length` events."""
    events = [takeover(None, number)]
    while len(events) < length:
        events.append(follow(events[-1]))
    return events


def test_a_dense_chain_counts_in_full() -> None:
    events = owned(5)
    counted, followed = settle(stored(*events, step=7))
    assert counted == digests(events)
    assert followed.head == Head(5, events[-1].digest, 35, "live", ((1, 1),))
    assert (followed.strays, followed.gap) == ([], None)


def test_events_carry_the_sequence_they_were_stored_at() -> None:
    counted, _ = read(stored(*owned(3), step=4))
    assert [each.sequence for each in counted] == [4, 8, 12]


def test_an_empty_subject_is_no_damage() -> None:
    counted, followed = settle([])
    assert (counted, followed.head, followed.gap) == ([], NOTHING, None)


def test_an_event_stored_twice_counts_once() -> None:
    events = owned(3)
    counted, followed = settle(stored(events[0], events[1], events[1], events[2], events[0]))
    assert counted == digests(events)
    assert [(each.sequence, each.seq) for each in followed.strays] == [(3, 2), (5, 1)]
    assert followed.strays[0].why == "stored twice"
    assert followed.gap is None


def test_a_zombies_late_events_after_the_takeover_are_strays() -> None:
    start = owned(3)
    new = takeover(start[-1], 2)
    late = [zombie := follow(start[-1], payload="late"), follow(zombie), follow(follow(zombie))]
    after = follow(new)
    counted, followed = settle(stored(*start, new, late[0], after, late[1], late[2]))
    assert counted == digests([*start, new, after])
    assert [each.sequence for each in followed.strays] == [5, 7, 8]
    assert followed.gap is None


def test_a_zombies_longer_chain_never_wins_over_a_higher_writer() -> None:
    start = owned(2)
    new = takeover(start[-1], 2)
    late = follow(start[-1])
    tail = [late]
    for _ in range(9):
        tail.append(follow(tail[-1]))
    counted, followed = settle(stored(*start, new, *tail))
    assert counted == digests([*start, new])
    assert followed.gap is None


def test_a_takeover_located_later_wins_back_from_before_the_branch() -> None:
    start = owned(3)
    late = [zombie := follow(start[-1], payload="late"), follow(zombie)]
    new = [second := takeover(start[-1], 2), follow(second)]
    messages = stored(*start, *late, *new)
    with pytest.raises(Branch) as branch:
        read(messages)
    assert branch.value.pin == Pin(4, start[-1].digest, 6, 2)
    counted, followed = settle(messages)
    assert counted == digests([*start, *new])
    assert [each.sequence for each in followed.strays] == [4, 5]
    assert followed.gap is None


def test_a_zombie_that_goes_on_after_losing_the_branch_stays_a_stray() -> None:
    start = owned(3)
    zombie = follow(start[-1], payload="late")
    new = takeover(start[-1], 2)
    more = follow(new)
    counted, followed = settle(stored(*start, zombie, new, follow(zombie), more))
    assert counted == digests([*start, new, more])
    assert [each.sequence for each in followed.strays] == [4, 6]


def test_of_two_resumers_with_equal_number_the_earlier_counts() -> None:
    start = owned(2)
    first, second = takeover(start[-1], 2, who="a"), takeover(start[-1], 2, who="b")
    counted, followed = settle(stored(*start, first, second, follow(second), more := follow(first)))
    assert counted == digests([*start, first, more])
    assert [each.sequence for each in followed.strays] == [4, 5]


def test_a_stray_chain_that_another_writer_continued_stays_a_stray() -> None:
    start = owned(2)
    new = takeover(start[-1], 2)
    zombie = follow(start[-1])
    astray = takeover(zombie, 3)
    counted, followed = settle(stored(*start, new, zombie, astray, more := follow(new)))
    assert counted == digests([*start, new, more])
    assert followed.gap is None


def test_a_takeover_far_behind_the_branch_still_wins() -> None:
    start = owned(2)
    tail = [follow(start[-1], payload="old")]
    for _ in range(50):
        tail.append(follow(tail[-1]))
    new = takeover(start[-1], 2)
    counted, _ = settle(stored(*start, *tail, new))
    assert counted == digests([*start, new])


def test_two_branches_one_after_the_other_are_both_taken() -> None:
    start = owned(2)
    old = [a := follow(start[-1]), follow(a)]
    second = takeover(start[-1], 2)
    middle = [b := follow(second), follow(b)]
    third = takeover(second, 3)
    counted, followed = settle(stored(*start, *old, second, *middle, third))
    assert counted == digests([*start, second, third])
    assert followed.head.writers == ((1, 1), (3, 2), (4, 3))


def test_three_takeovers_at_one_event_are_ranked_by_number() -> None:
    start = owned(2)
    second, fourth, third = (takeover(start[-1], number) for number in (2, 4, 3))
    counted, followed = settle(stored(*start, second, fourth, third))
    assert counted == digests([*start, fourth])
    assert len(followed.strays) == 2


def test_the_winning_takeover_stored_twice_counts_where_it_won() -> None:
    start = owned(2)
    new = takeover(start[-1], 2)
    counted, followed = settle(stored(*start, follow(start[-1]), new, new))
    assert counted == digests([*start, new])
    assert followed.head.sequence == 4


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b"garbage",
        b'{"v":1}',
        b"\xff" * 100,
        owned(1)[0].body[:-1],
        follow(None, session="sess_other").body,
        follow(None, seq=9, session="sess_other").body,
        takeover(follow(None, seq=1, session="sess_other"), 99).body.replace(
            SESSION.encode(), b"sess_other"
        ),
        tombstone(session="sess_other"),
    ],
)
def test_what_is_not_this_sessions_is_a_stray_wherever_it_lies(foreign: bytes) -> None:
    events = owned(3)
    counted, followed = settle(
        stored(foreign, events[0], foreign, events[1], foreign, events[2], foreign)
    )
    assert counted == digests(events)
    assert [each.sequence for each in followed.strays] == [1, 3, 5, 7]
    assert followed.gap is None
    assert followed.strays[0].digest == event.digest_of(foreign)


def test_a_lost_event_is_a_gap_with_both_sides_named() -> None:
    events = owned(6)
    counted, followed = settle(stored(*events[:3], *events[4:]))
    assert counted == digests(events[:3])
    gap = followed.gap
    assert gap is not None
    assert (gap.seq, gap.sequence) == (3, 4)
    assert gap.expected == f"seq 4 after {events[2].digest}"
    assert gap.found == f"seq 5 after {events[3].digest}"


def test_a_lost_first_event_is_a_gap_too() -> None:
    events = owned(3)
    _, followed = settle(stored(*events[1:]))
    assert followed.gap is not None
    assert followed.gap.seq == 0


@pytest.mark.parametrize("at", range(5))
def test_an_edited_event_breaks_the_chain_where_it_lies(at: int) -> None:
    events = owned(6)
    edited = events[at].body.replace(b'"harness_version":"1"', b'"harness_version":"2"')
    assert edited != events[at].body
    _, followed = settle(stored(*events[:at], edited, *events[at + 1 :]))
    assert followed.gap is not None
    assert followed.gap.seq == at + 1
    assert event.digest_of(edited) in followed.gap.expected
    assert events[at].digest in followed.gap.found


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("by", range(1, 5))
def test_an_event_moved_behind_later_ones_is_a_gap(at: int, by: int) -> None:
    events = owned(6)
    events.insert(at + by, events.pop(at))
    counted, followed = settle(stored(*events))
    assert followed.gap is not None
    assert followed.gap.seq == len(counted) == at + 1
    assert followed.gap.expected == f"seq {at + 2} after {counted[-1]}"
    assert followed.gap.found.endswith("too early")


def test_any_order_but_the_written_one_is_seen() -> None:
    events = owned(5)
    for order in itertools.permutations(events):
        counted, followed = settle(stored(*order))
        assert (followed.gap is None) == (list(order) == events), order
        assert counted == digests(events[: len(counted)])


@given(st.data())
def test_no_loss_or_edit_in_the_middle_goes_unseen(data: st.DataObject) -> None:
    events = owned(data.draw(st.integers(3, 9)))
    bodies = [each.body for each in events]
    at = data.draw(st.integers(0, len(events) - 2))
    match data.draw(st.sampled_from(["lost", "byte", "doubled and lost"])):
        case "lost":
            del bodies[at]
        case "byte":
            place = data.draw(st.integers(0, len(bodies[at]) - 1))
            bodies[at] = bodies[at][:place] + b"~" + bodies[at][place + 1 :]
        case _:
            bodies[at] = bodies[
                data.draw(st.integers(0, len(events) - 1).filter(lambda n: n != at))
            ]
    _, followed = settle(stored(*bodies))
    assert followed.gap is not None
    assert followed.gap.seq in (at, at + 1)


@pytest.mark.parametrize("garbled", [b"{", b"\x00", b"null"])
def test_an_event_that_became_garbage_is_a_gap(garbled: bytes) -> None:
    events = owned(4)
    _, followed = settle(stored(*events[:2], garbled, events[3]))
    assert followed.gap is not None
    assert followed.gap.seq == 2


def test_a_gap_is_forgotten_when_the_right_event_comes_after_all() -> None:
    events = owned(3)
    counted, followed = settle(stored(events[0], follow(None, seq=9, prev="ab" * 32), *events[1:]))
    assert counted == digests(events)
    assert followed.gap is None
    assert [each.why for each in followed.strays] == ["out of place"]


def test_a_rolled_back_log_is_simply_shorter() -> None:
    counted, followed = settle(stored(*owned(6)[:4]))
    assert (len(counted), followed.gap) == (4, None)


def test_control_messages_are_handed_out_and_count_for_nothing() -> None:
    events = owned(2)
    followed = Chain(SESSION, NOTHING)
    found = [followed.offer(each, "live") for each in stored(*events, tombstone())]
    assert isinstance(found[2], Control)
    assert (followed.head.seq, followed.strays) == (2, [])


def test_a_tail_goes_on_from_the_head_of_a_snapshot() -> None:
    start = owned(3)
    new = takeover(start[-1], 2)
    messages = stored(*start, new, follow(new))
    _, before = read(messages[:3])
    counted, followed = read(messages[3:], before.head)
    assert [each.seq for each in counted] == [4, 5]
    assert followed.head == read(messages)[1].head


def test_a_tail_that_beats_the_snapshots_chain_is_a_branch() -> None:
    start = owned(3)
    zombie = [late := follow(start[-1]), follow(late)]
    messages = stored(*start, *zombie, takeover(start[-1], 2))
    _, before = read(messages[:5])
    with pytest.raises(Branch) as branch:
        read(messages[5:], before.head)
    assert branch.value.pin == Pin(4, start[-1].digest, 6, 2)


def test_the_writer_number_in_force_is_known_for_every_seq() -> None:
    start = owned(3)
    second = takeover(start[-1], 2)
    more = follow(second)
    fifth = takeover(more, 5)
    _, followed = read(stored(*start, second, more, fifth))
    assert [followed.in_force(seq) for seq in range(8)] == [0, 1, 1, 1, 2, 2, 5, 5]
    assert followed.head.writer == 5


def test_a_takeover_with_a_number_that_is_not_higher_changes_no_writer() -> None:
    start = owned(2, number=3)
    stale = takeover(start[-1], 2)
    counted, followed = settle(stored(*start, stale))
    assert counted == digests([*start, stale])
    assert followed.head.writers == ((1, 3),)


def test_strays_do_not_slow_memory_down_to_the_length_of_the_log() -> None:
    _, followed = read(stored(*chain(500)))
    assert followed.strays == []
    assert followed.head.writers == ()


def winners(messages: Sequence[Message]) -> list[str]:
    """The reference: from the root, at each fork the higher number, then the earlier."""
    nodes: dict[str, tuple[Event, int]] = {}
    for message in messages:
        found = event.decode(message.body)
        if isinstance(found, Event):
            nodes.setdefault(found.digest, (found, message.sequence))
    path: list[str] = []
    last: str | None = None
    force = 0
    while True:
        children = [node for node in nodes.values() if node[0].prev == last]
        if not children:
            return path
        ranked = [(max(force, number_of(child)), -at, child) for child, at in children]
        force, _, best = max(ranked, key=lambda row: row[:2])
        path.append(best.digest)
        last = best.digest


def number_of(found: Event) -> int:
    payload = found.payload
    return int(payload["writer"]["number"]) if isinstance(payload, dict) and payload else 0


@given(st.data())
def test_any_interleaving_of_racing_writers_gives_the_chain_of_the_reference(
    data: st.DataObject,
) -> None:
    """Writers that see stale heads, as if the broker never checked an expectation."""
    written: list[Event] = [takeover(None, 1)]
    subject = Subject()
    subject.put(written[0])
    for _ in range(data.draw(st.integers(1, 14), label="steps")):
        seen = data.draw(st.sampled_from(written), label="what this writer saw last")
        if data.draw(st.booleans(), label="takes over"):
            number = data.draw(st.integers(1, 4), label="number")
            new = takeover(seen, number, who=str(len(written)))
        else:
            new = follow(seen, payload={"writer": {"number": 0}, "at": len(written)})
        written.append(new)
        subject.put(new)
    counted, followed = settle(subject.messages)
    assert counted == winners(subject.messages)
    assert len(counted) + len(followed.strays) == len(subject.messages)
    assert followed.gap is None


@given(st.data())
def test_a_tail_from_any_snapshot_ends_where_the_whole_log_ends_or_says_branch(
    data: st.DataObject,
) -> None:
    written: list[Event] = [takeover(None, 1)]
    subject = Subject()
    subject.put(written[0])
    for at in range(10):
        seen = data.draw(st.sampled_from(written[-3:]), label="what this writer saw last")
        takes = data.draw(st.booleans(), label="takes over")
        new = takeover(seen, at // 3 + 1, who=str(at)) if takes else follow(seen, payload={"": at})
        written.append(new)
        subject.put(new)
    counted, whole = settle(subject.messages)
    cut = data.draw(st.integers(1, len(subject.messages)), label="snapshot after")
    _, before = settle(subject.messages[:cut])
    rest = [each for each in subject.messages if each.sequence > before.head.sequence]
    try:
        _, followed = read(rest, before.head)
    except Branch:
        return
    if before.head.digest in counted and followed.gap is None:
        assert followed.head == whole.head
    assert message_at(subject.messages, before.head.sequence).subject == SUBJECT


def message_at(messages: Sequence[Message], sequence: int) -> Message:
    return next(each for each in messages if each.sequence == sequence)
