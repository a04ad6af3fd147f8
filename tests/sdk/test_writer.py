"""The state machine of appends: each row of the answer table, on answers made by hand."""

from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog import event
from flightlog.bus.answer import Acked, Answer, Busy, Conflict, Full, Oversized, Unclear
from flightlog.bus.protocol import Message, Outgoing
from flightlog.errors import Fenced, LogCorrupt, LogFull, SessionPurged, TooLarge
from flightlog.event import Event
from flightlog.reading.chain import Head
from flightlog.wire import carry
from flightlog.writing.draft import Draft
from flightlog.writing.writer import (
    BATCH_BYTES,
    BATCH_EVENTS,
    GROUP_FROM_R1,
    GROUP_FROM_R3,
    Action,
    Failed,
    Pause,
    ReadAfter,
    Send,
    Stored,
    Writer,
)
from tests.handmade import SESSION, SUBJECT, chain, follow, takeover, tombstone

A = TypeVar("A", bound=Action)


def writer(
    drafts: int = 0, *, head: Head | None = None, expected: int = 0, replicas: int = 3
) -> Writer:
    made = Writer(
        SESSION,
        head or Head(),
        expected=expected,
        harness_version="1.4.2",
        number=2,
        replicas=replicas,
    )
    for n in range(drafts):
        made.offer(draft(n))
    return made


def draft(n: object = 0, *, type: str = "note") -> Draft:
    return Draft(type, carry.pack({"n": n}))


def sent(by: Writer) -> Send:
    action = by.next()
    assert isinstance(action, Send)
    return action


def bodies(send: Send) -> list[bytes]:
    return [message.body for message in send.messages]


def got(action: Action, kind: type[A]) -> A:
    assert isinstance(action, kind), action
    return action


def stored(at: int, body: bytes) -> Message:
    return Message(SUBJECT, at, body)


def decoded(body: bytes) -> Event:
    found = event.decode(body)
    assert isinstance(found, Event)
    return found


# --- what is sent ---


def test_the_first_event_of_an_empty_log_is_seq_1_and_expects_nothing() -> None:
    first = sent(writer(1))
    found = decoded(first.messages[0].body)
    assert (found.seq, found.prev, found.parent_seq, first.expected) == (1, None, None, 0)


def test_an_append_goes_on_from_the_head_and_expects_the_last_message_strays_included() -> None:
    head = Head(7, "ab" * 32, 40, "live", ((1, 1),))
    first = sent(writer(1, head=head, expected=43))
    found = decoded(first.messages[0].body)
    assert (found.seq, found.prev, found.parent_seq, first.expected) == (8, "ab" * 32, 7, 43)


def test_the_headers_are_the_fixed_list_and_none_is_empty() -> None:
    made = writer()
    made.offer(Draft("note", carry.pack(1), traceparent="00-ab-cd-01"))
    made.offer(draft())
    with_trace, without = sent(made).messages
    assert with_trace.headers == {
        "Flightlog-Type": "note",
        "Flightlog-Seq": "1",
        "Flightlog-Writer": "2",
        "traceparent": "00-ab-cd-01",
    }
    assert set(without.headers) == {"Flightlog-Type", "Flightlog-Seq", "Flightlog-Writer"}


def test_an_event_answers_the_one_before_it_unless_the_draft_says_otherwise() -> None:
    made = writer()
    for parent in (None, None, 1, None):
        made.offer(Draft("note", carry.pack(0), parent_seq=parent))
    assert [decoded(body).parent_seq for body in bodies(sent(made))] == [None, 1, 1, 3]


def test_a_draft_may_carry_the_time_at_which_it_happened() -> None:
    made = writer()
    made.offer(Draft("note", carry.pack(0), ts="2020-01-01T00:00:00.000000Z"))
    assert decoded(bodies(sent(made))[0]).ts == "2020-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("replicas", "queued", "group"),
    [
        (1, 1, 1),
        (1, GROUP_FROM_R1 - 1, 1),
        (1, GROUP_FROM_R1, GROUP_FROM_R1),
        (3, 1, 1),
        (3, GROUP_FROM_R3, GROUP_FROM_R3),
        (3, BATCH_EVENTS, BATCH_EVENTS),
        (3, BATCH_EVENTS + 5, BATCH_EVENTS),
    ],
)
def test_what_is_queued_leaves_in_groups_of_the_measured_size(
    replicas: int, queued: int, group: int
) -> None:
    assert len(sent(writer(queued, replicas=replicas)).messages) == group


def test_a_group_is_bounded_in_bytes_and_never_empty() -> None:
    made = writer()
    for size in (BATCH_BYTES + 9, BATCH_BYTES // 2, BATCH_BYTES // 3, BATCH_BYTES // 3):
        made.offer(draft("x" * size))
    groups: list[int] = []
    at = 0
    while not made.idle:
        group = sent(made).messages
        assert len(group) == 1 or sum(len(each.body) for each in group) <= BATCH_BYTES
        groups.append(len(group))
        at += len(group)
        made.answered(Acked("S", at))
    assert groups == [1, 2, 1]


def test_a_group_is_a_chain_of_its_own_and_continues_the_log() -> None:
    events = [decoded(body) for body in bodies(sent(writer(5)))]
    assert [each.seq for each in events] == [1, 2, 3, 4, 5]
    assert [each.prev for each in events] == [None, *(each.digest for each in events[:-1])]


def test_a_draft_that_was_not_sent_can_be_withdrawn_and_leaves_no_hole() -> None:
    made = writer()
    drafts = [draft(n) for n in range(3)]
    for each in drafts:
        made.offer(each)
    assert made.withdraw(drafts[1])
    assert not made.withdraw(drafts[1])
    events = [decoded(body) for body in bodies(sent(made))]
    assert [(each.seq, each.payload["n"]) for each in events] == [(1, 0), (2, 2)]
    assert not made.withdraw(drafts[0])


def test_equal_drafts_are_not_mixed_up_when_one_is_withdrawn() -> None:
    made = writer()
    first, twin = draft(1), draft(1)
    made.offer(first)
    sent(made)
    made.offer(twin)
    assert not made.withdraw(first)
    assert made.withdraw(twin)


# --- what an answer means ---


def test_an_ack_stores_the_group_and_moves_head_and_expectation() -> None:
    made = writer(3)
    before = bodies(sent(made))
    events = got(made.answered(Acked("S", 12)), Stored).events
    assert [each.body for each in events] == before
    assert [each.sequence for each in events] == [10, 11, 12]
    assert made.idle
    made.offer(draft())
    after = sent(made)
    assert after.expected == 12
    assert decoded(after.messages[0].body).prev == events[-1].digest


def test_an_acked_takeover_is_the_writer_in_force() -> None:
    made = writer(head=Head(3, "ab" * 32, 9, "live", ((1, 1),)), expected=9)
    resumed = takeover(chain(1)[0], 2)
    made.offer(Draft(resumed.type, resumed.raw))
    sent(made)
    made.answered(Acked("S", 10))
    assert made.head.writers == ((1, 1), (4, 2))
    assert made.head.writer == 2


@pytest.mark.parametrize("answer", [Full("FLIGHTLOG_0"), Oversized(1_000)])
def test_a_definite_refusal_fails_everything_queued_and_the_writer_goes_on(answer: Answer) -> None:
    made = writer(2, replicas=1)
    sent(made)
    failed = got(made.answered(answer), Failed)
    assert isinstance(failed.error, LogFull | TooLarge)
    assert not failed.final
    assert made.idle
    made.offer(draft("later"))
    again = sent(made)
    assert (decoded(again.messages[0].body).seq, again.expected) == (1, 0)


def test_a_refused_size_names_size_and_limit() -> None:
    made = writer(1)
    size = len(bodies(sent(made))[0])
    error = got(made.answered(Oversized(100)), Failed).error
    assert isinstance(error, TooLarge)
    assert (error.size, error.limit) == (size, 100)


@pytest.mark.parametrize("answer", [Unclear("TimeoutError"), Unclear("error 10164")])
def test_after_an_unclear_answer_the_same_bytes_go_with_the_same_expectation(
    answer: Answer,
) -> None:
    made = writer(4)
    before = sent(made)
    for attempt in (1, 2, 3):
        made.offer(draft(f"late {attempt}"))
        assert got(made.answered(answer), Pause).attempt == attempt
        assert made.next() == before


def test_progress_starts_the_pauses_over() -> None:
    made = writer(1)
    sent(made)
    made.answered(Unclear("x"))
    made.answered(Acked("S", 1))
    made.offer(draft())
    sent(made)
    assert got(made.answered(Unclear("x")), Pause).attempt == 1


@pytest.mark.parametrize("answer", [Full("FLIGHTLOG_0"), Oversized(1_000)])
def test_a_refusal_after_an_unclear_try_asks_the_leader_what_became_of_that(answer: Answer) -> None:
    made = writer(1)
    body = bodies(sent(made))[0]
    made.answered(Unclear("x"))
    assert made.answered(answer) == ReadAfter(0, leader=True)
    assert got(made.found(stored(5, body)), Stored).events[0].sequence == 5


def test_a_size_that_is_refused_after_an_unclear_try_is_refused_for_good() -> None:
    made = writer(1)
    sent(made)
    made.answered(Unclear("x"))
    made.answered(Oversized(1_000))
    assert not got(made.found(None), Failed).final
    assert made.idle


def test_a_full_stream_after_an_unclear_try_is_not_definite_as_that_may_still_arrive() -> None:
    made = writer(1)
    body = bodies(sent(made))[0]
    made.answered(Unclear("x"))
    made.answered(Full("S"))
    assert "full" in got(made.found(None), Pause).why
    assert bodies(sent(made)) == [body]
    made.answered(Conflict(7))
    assert got(made.found(stored(7, body)), Stored).events[0].sequence == 7


def test_busy_batches_go_again_after_a_pause_as_singles_if_they_are_few() -> None:
    made = writer(3)
    before = bodies(sent(made))
    got(made.answered(Busy()), Pause)
    for n, body in enumerate(before):
        single = sent(made)
        assert bodies(single) == [body]
        assert single.expected == n
        assert got(made.answered(Acked("S", n + 1)), Stored).events[0].body == body
    assert made.idle


def test_a_busy_batch_of_many_stays_a_batch() -> None:
    made = writer(20)
    before = bodies(sent(made))
    got(made.answered(Busy()), Pause)
    assert bodies(sent(made)) == before


def test_a_full_stream_after_a_busy_one_is_still_definite() -> None:
    made = writer(3)
    sent(made)
    made.answered(Busy())
    assert isinstance(got(made.answered(Full("S")), Failed).error, LogFull)


def test_after_singles_the_next_group_is_a_batch_again() -> None:
    made = writer(2)
    sent(made)
    made.answered(Busy())
    for n in (1, 2):
        sent(made)
        made.answered(Acked("S", n))
    for n in range(3):
        made.offer(draft(n))
    assert len(sent(made).messages) == 3


@pytest.mark.parametrize("last", [None, 9, 4])
def test_a_conflict_is_settled_by_the_first_message_after_the_expectation(last: int | None) -> None:
    made = writer(1, head=Head(2, "ab" * 32, 4), expected=4)
    sent(made)
    assert made.answered(Conflict(last)) == ReadAfter(4)


def test_a_conflict_with_our_own_bytes_means_that_they_are_stored() -> None:
    made = writer(1)
    body = bodies(sent(made))[0]
    made.answered(Unclear("the ack was lost"))
    made.answered(Conflict(7))
    events = got(made.found(stored(7, body)), Stored).events
    assert [(each.body, each.sequence) for each in events] == [(body, 7)]
    assert made.idle
    assert made.expected == 7


def test_a_batch_whose_ack_was_lost_is_compared_message_by_message_and_not_sent_again() -> None:
    made = writer(4)
    before = bodies(sent(made))
    made.answered(Unclear("the ack was lost"))
    sent(made)
    action: Action = made.answered(Conflict(23))
    for n, body in enumerate(before):
        assert action == ReadAfter(19 + n if n else 0)
        events = got(made.found(stored(20 + n, body)), Stored).events
        assert [each.body for each in events] == [body]
        action = made.next() if not made.idle else action
    assert made.idle
    assert made.expected == 23


def test_what_is_missing_behind_our_stored_ones_is_sent_after_them_byte_for_byte() -> None:
    made = writer(3)
    before = bodies(sent(made))
    made.offer(draft("later"))
    made.answered(Conflict(9))
    made.found(stored(9, before[0]))
    assert made.next() == ReadAfter(9)
    rest = got(made.found(None), Send)
    assert bodies(rest) == before[1:]
    assert rest.expected == 9
    got(made.answered(Acked("S", 11)), Stored)
    assert decoded(bodies(sent(made))[0]).payload == {"n": "later"}


def test_while_the_conflicting_message_is_out_of_sight_the_same_bytes_are_tried_again() -> None:
    made = writer(2)
    before = sent(made)
    for attempt in (1, 2, 3):
        assert got(made.answered(Conflict(9)), ReadAfter).sequence == 0
        assert got(made.found(None), Pause).attempt == attempt
        assert made.next() == before


@pytest.mark.parametrize(
    "other",
    [
        takeover(None, 3).body,
        follow(None, payload={"n": 0}).body,
        b"garbage",
        tombstone(session="sess_other"),
    ],
)
def test_other_bytes_first_mean_fenced_for_good(other: bytes) -> None:
    made = writer(2, head=Head(6, "ab" * 32, 8), expected=8)
    sent(made)
    made.answered(Conflict(9))
    failed = got(made.found(stored(9, other)), Failed)
    assert isinstance(failed.error, Fenced)
    assert failed.final
    assert (failed.error.session, failed.error.seq) == (SESSION, 6)


def test_other_bytes_behind_some_of_ours_fence_what_is_left() -> None:
    made = writer(3)
    before = bodies(sent(made))
    made.answered(Conflict(5))
    got(made.found(stored(4, before[0])), Stored)
    failed = got(made.found(stored(5, takeover(decoded(before[0]), 3).body)), Failed)
    assert isinstance(failed.error, Fenced)
    assert failed.error.seq == 1


def test_what_lies_further_on_decides_nothing() -> None:
    made = writer(1)
    body = bodies(sent(made))[0]
    made.answered(Conflict(99))
    got(made.found(stored(3, body)), Stored)
    assert made.expected == 3


def test_a_tombstone_means_that_the_session_was_purged() -> None:
    made = writer(1)
    sent(made)
    made.answered(Conflict(9))
    failed = got(made.found(stored(9, tombstone())), Failed)
    assert isinstance(failed.error, SessionPurged)
    assert failed.final


@pytest.mark.parametrize("last", [0, 3])
def test_a_last_sequence_below_the_expectation_is_a_log_that_was_rolled_back(last: int) -> None:
    made = writer(1, head=Head(2, "ab" * 32, 4), expected=4)
    sent(made)
    failed = got(made.answered(Conflict(last)), Failed)
    assert isinstance(failed.error, LogCorrupt)
    assert (failed.error.session, failed.error.seq, failed.error.found) == (SESSION, 2, str(last))
    assert failed.final


# --- any order of faults ---


class Ledger:
    """One subject of a broker, as DESIGN section 4 describes it: pure, faults drawn by the test."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    @property
    def last(self) -> int:
        return self.messages[-1].sequence if self.messages else 0

    def append(self, messages: Sequence[Outgoing], expected: int) -> Answer:
        if expected != self.last:
            return Conflict(self.last)
        for message in messages:
            self.messages.append(stored(self.last + 1, message.body))
        return Acked("S", self.last)

    def after(self, sequence: int) -> Message | None:
        return next((each for each in self.messages if each.sequence > sequence), None)


def step(made: Writer, ledger: Ledger, action: Action, fault: str) -> Action:
    match action:
        case Send(messages=messages, expected=expected):
            if fault == "request lost":
                return made.answered(Unclear(fault))
            if fault == "busy" and len(messages) > 1:
                return made.answered(Busy())
            if fault == "full":
                return made.answered(Full("S"))
            answer = ledger.append(messages, expected)
            return made.answered(Unclear(fault) if fault == "ack lost" else answer)
        case ReadAfter(sequence=sequence, leader=leader):
            lags = fault == "lag" and not leader
            return made.found(None if lags else ledger.after(sequence))
        case _:
            return made.next()


ENOUGH = 200  # steps; far more than any of these takes
FAULTS = st.sampled_from(["", "request lost", "ack lost", "busy", "full", "lag"])
SOFT_FAULTS = st.sampled_from(["", "request lost", "ack lost", "busy", "lag"])


def drive(made: Writer, ledger: Ledger, faults: list[str]) -> Stored | Failed:
    """Do as the writer says until something is resolved; each action takes the next fault."""
    action: Action = made.next()
    for _ in range(ENOUGH):
        if isinstance(action, Stored | Failed):
            return action
        action = step(made, ledger, action, faults.pop() if faults else "")
    raise AssertionError("the writer never comes to an end")


def test_the_rest_of_a_stored_batch_is_not_given_up_when_the_stream_is_full_meanwhile() -> None:
    made, ledger = writer(), Ledger()
    for n in range(GROUP_FROM_R1):
        made.offer(draft(n))
    faults = ["ack lost", "", "", "lag", "", "lag", "lag", "full"]  # by turns from the first on
    first = drive(made, ledger, list(reversed(faults[:3])))
    assert isinstance(first, Stored)
    told = len(first.events)
    later = list(reversed(faults[3:]))
    while not made.idle:
        outcome = drive(made, ledger, later)
        assert isinstance(outcome, Stored)
        told += len(outcome.events)
    assert told == len(ledger.messages) == GROUP_FROM_R1


@settings(max_examples=300)
@given(st.lists(st.integers(1, 5), max_size=6), st.lists(FAULTS, max_size=30))
def test_whatever_is_lost_on_the_way_each_event_is_stored_once_in_order_or_definitely_not(
    groups: list[int], faults: list[str]
) -> None:
    made, ledger = writer(), Ledger()
    told: list[int] = []
    failed: list[int] = []
    queued: list[int] = []
    offered = 0
    while groups or not made.idle:
        for _ in range(groups.pop() if groups else 0):
            made.offer(draft(offered))
            queued.append(offered)
            offered += 1
        match drive(made, ledger, faults):
            case Stored(events=events):
                told += [each.payload["n"] for each in events]
                del queued[: len(events)]
            case Failed(final=final):
                assert not final
                failed += queued
                queued.clear()
    in_log = [decoded(each.body) for each in ledger.messages]
    assert [each.payload["n"] for each in in_log] == told
    assert sorted(told + failed) == list(range(offered))
    assert [each.seq for each in in_log] == list(range(1, len(told) + 1))
    assert [each.prev for each in in_log] == [None, *(each.digest for each in in_log)][: len(told)]


@settings(max_examples=300)
@given(st.integers(1, 6), st.lists(SOFT_FAULTS, max_size=8), st.integers(0, 10), st.integers(1, 4))
def test_a_writer_that_is_overtaken_at_any_step_is_told_and_leaves_nothing_that_counts(
    drafts: int, faults: list[str], steps: int, more: int
) -> None:
    made, ledger = writer(drafts), Ledger()
    told: list[Event] = []
    action: Action = made.next()
    for _ in range(steps):
        action = step(made, ledger, action, faults.pop() if faults else "")
        if isinstance(action, Stored):
            told += action.events
            if made.idle:
                break
    last = decoded(ledger.messages[-1].body) if ledger.messages else None
    ledger.messages.append(stored(ledger.last + 1, takeover(last, 3).body))
    before = list(ledger.messages)
    for n in range(more):
        made.offer(draft(("late", n)))
    for _ in range(ENOUGH):
        if isinstance(action, Failed):
            break
        action = step(made, ledger, action, faults.pop() if faults else "")
        told += action.events if isinstance(action, Stored) else []
    assert isinstance(action, Failed)
    assert isinstance(action.error, Fenced)
    assert ledger.messages == before
    assert [each.body for each in told] == [each.body for each in before[: len(told)]]


def test_a_foreign_takeover_or_tombstone_behind_our_last_event_ends_our_time() -> None:
    made = writer(1)
    last = decoded(bodies(sent(made))[0])
    made.answered(Acked("S", 1))
    assert isinstance(made.overtaken_by(stored(2, takeover(last, 3).body)), Fenced)
    assert isinstance(made.overtaken_by(stored(2, tombstone())), SessionPurged)
    for harmless in (takeover(last, 2).body, follow(last).body, b"garbage", last.body):
        assert made.overtaken_by(stored(2, harmless)) is None


def test_joined_drafts_leave_in_one_batch_and_never_as_singles() -> None:
    made = writer(replicas=1)
    made.offer(Draft("decision", carry.pack(1), joined=True))
    made.offer(Draft("result", carry.pack(2)))
    made.offer(Draft("note", carry.pack(3)))
    for _ in range(2):  # refused as too many batches: again as a batch
        sent = made.next()
        assert isinstance(sent, Send)
        assert len(sent.messages) == 2
        assert isinstance(made.answered(Busy()), Pause)
