"""Liveness is progress of this process, whatever NATS and Redis do."""

from flightlog.bus.notices import MAX_ACK_PENDING, Standing
from flightlog_projector.progress import SILENCE, Progress

WORK = Standing(ack_floor=5, delivered=9, pending=3, ack_pending=4)
IDLE = Standing(ack_floor=9, delivered=9, pending=0, ack_pending=0)


def test_an_idle_projector_lives() -> None:
    progress = Progress(60, now=0)
    progress.stands(IDLE, 1)
    progress.turned(1_000)
    assert progress.why_dead(1_010) is None
    assert not progress.is_silent(1)


def test_a_loop_that_stands_still_is_dead() -> None:
    progress = Progress(60, now=0)
    assert progress.why_dead(59) is None
    assert "stands still" in (progress.why_dead(61) or "")


def test_work_that_does_not_move_is_death() -> None:
    progress = Progress(60, now=0)
    for now in range(0, 70, 10):
        progress.turned(now)
        progress.stands(WORK, now)
    assert "7 messages wait" in (progress.why_dead(70) or "")


def test_work_that_anybody_moves_is_life() -> None:
    progress = Progress(60, now=0)
    progress.stands(WORK, 10)
    progress.stands(Standing(ack_floor=6, delivered=9, pending=3, ack_pending=3), 55)
    progress.turned(100)
    assert progress.why_dead(100) is None


def test_a_long_fold_that_reads_pages_is_life() -> None:
    progress = Progress(60, now=0)
    progress.stands(WORK, 1)
    for now in range(0, 300, 20):
        progress.turned(now)
        progress.moved(now)
    assert progress.why_dead(300) is None


def test_a_broker_or_redis_that_is_away_is_no_death() -> None:
    progress = Progress(60, now=0)
    progress.stands(WORK, 1)
    for now in range(0, 1_000, 30):
        progress.hindered(now)
    assert progress.why_dead(1_000) is None
    assert not progress.is_silent(991)


def test_a_consumer_with_work_that_says_nothing_is_silent() -> None:
    progress = Progress(60, now=0)
    progress.stands(WORK, SILENCE)
    assert progress.is_silent(SILENCE + 1)
    progress.heard(SILENCE + 1)
    assert not progress.is_silent(SILENCE + 2)


def test_a_consumer_that_may_give_no_more_is_not_silent() -> None:
    progress = Progress(60, now=0)
    full = Standing(ack_floor=5, delivered=9, pending=3, ack_pending=MAX_ACK_PENDING)
    progress.stands(full, 100)
    assert not progress.is_silent(105)
