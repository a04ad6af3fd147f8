"""Notices by session: coalesced, paced, retried, and acknowledged only when covered."""

from hypothesis import given
from hypothesis import strategies as st

from flightlog.bus.notices import Notice
from flightlog_projector.backlog import PACE, RETRY_MOST, Backlog

A, B = ("t", "a"), ("t", "b")


def notice(sequence: int, delivered: int = 1) -> Notice:
    return Notice("subject", sequence, "note", delivered, f"reply.{sequence}.{delivered}")


def test_notices_of_one_session_are_one_fold() -> None:
    backlog = Backlog()
    backlog.add([(A, notice(1)), (B, notice(2)), (A, notice(3))], now=0.0)
    works = backlog.take(0.0, 10)
    assert [(work.key, work.highest) for work in works] == [(A, 3), (B, 2)]
    assert backlog.take(0.0, 10) == []


def test_what_the_row_covers_is_acknowledged_and_the_rest_is_due_after_a_pause() -> None:
    backlog = Backlog()
    backlog.add([(A, notice(1))], now=0.0)
    backlog.take(0.0, 10)
    backlog.add([(A, notice(5))], now=0.1)
    done = backlog.settle(A, 3, now=0.2)
    assert [each.sequence for each in done] == [1]
    assert backlog.take(0.2, 10) == []
    assert [work.highest for work in backlog.take(0.2 + PACE, 10)] == [5]


def test_a_busy_session_is_folded_no_more_often_than_the_pace() -> None:
    backlog = Backlog()
    folds = 0
    for step in range(1_000):
        now = step / 100
        backlog.add([(A, notice(step))], now)
        for work in backlog.take(now, 10):
            folds += 1
            backlog.settle(work.key, work.highest, now)
    assert 10 / PACE <= folds <= 10 / PACE + 1


def test_a_quiet_session_is_due_at_once() -> None:
    backlog = Backlog()
    backlog.add([(A, notice(1))], now=0.0)
    backlog.settle(backlog.take(0.0, 1)[0].key, 1, now=0.0)
    backlog.add([(A, notice(2))], now=2 * PACE)
    assert backlog.wait(2 * PACE) == 0.0


def test_a_session_that_fails_is_tried_again_ever_more_slowly_up_to_a_limit() -> None:
    backlog = Backlog()
    backlog.add([(A, notice(1))], now=0.0)
    now, pauses = 0.0, []
    for _ in range(12):
        (work,) = backlog.take(now, 1)
        backlog.retry(work.key, now)
        pauses.append(round(backlog.wait(now) or 0.0, 6))
        now += 2 * RETRY_MOST
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1] == RETRY_MOST


def test_a_redelivered_notice_takes_the_place_of_the_earlier_delivery() -> None:
    backlog = Backlog()
    backlog.add([(A, notice(1))], now=0.0)
    backlog.add([(A, notice(1, delivered=2))], now=1.0)
    backlog.take(1.0, 1)
    assert [each.delivered for each in backlog.settle(A, 1, now=1.0)] == [2]
    assert len(backlog) == 0


def test_an_idle_backlog_keeps_nothing() -> None:
    backlog = Backlog()
    for n in range(1_000):
        backlog.add([(("t", str(n)), notice(n))], now=float(n))
        for work in backlog.take(float(n), 1):
            backlog.settle(work.key, n, now=float(n))
    assert len(backlog) == 0
    assert len(backlog._rests) <= 2
    assert len(backlog._rested) <= 2


steps = st.lists(
    st.tuples(st.sampled_from(["add", "take", "settle", "retry"]), st.integers(0, 3)), max_size=60
)


@given(steps)
def test_every_notice_is_acknowledged_once_in_the_end(plan: list[tuple[str, int]]) -> None:
    backlog, now, added, acked = Backlog(), 0.0, 0, list[int]()
    in_hand: list[tuple[tuple[str, str], int]] = []
    for action, n in plan:
        now += 0.3
        if action == "add":
            added += 1
            backlog.add([(("t", str(n)), notice(added))], now)
        elif action == "take":
            in_hand += [(work.key, work.highest) for work in backlog.take(now, n)]
        elif in_hand:
            key, highest = in_hand.pop(n % len(in_hand))
            if action == "retry":
                backlog.retry(key, now)
            else:
                acked += [each.sequence for each in backlog.settle(key, highest, now)]
    for key, highest in in_hand:
        acked += [each.sequence for each in backlog.settle(key, highest, now)]
    while len(backlog):
        now += 10
        for work in backlog.take(now, 100):
            acked += [each.sequence for each in backlog.settle(work.key, work.highest, now)]
    assert sorted(acked) == list(range(1, added + 1))
