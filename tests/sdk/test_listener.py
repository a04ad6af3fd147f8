"""A writer hears of items and takeovers, also when the hint was lost or came too early."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from flightlog import Fenced, Log, Session, connect
from flightlog.bus.protocol import Outgoing
from flightlog.running import inbox, listener
from flightlog.wire import subject as names
from tests.handmade import follow
from tests.network import Network
from tests.scripted import TENANT, payloads, stored, types, until


@pytest.fixture
async def log(nats_url: str) -> AsyncIterator[Log]:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        yield log


@pytest.fixture
async def other(nats_url: str) -> AsyncIterator[Log]:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        yield log


async def deafen(session: Session) -> None:
    """Lose every hint from now on, as a connection that is cut does."""
    for listening in session.listener._listening:
        await listening.close()


async def endless_call(session: Session) -> "asyncio.Task[object]":
    started = asyncio.Event()

    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(session.tool_call("endless", call_id="c", run=endless))
    await started.wait()
    return task


async def test_an_item_whose_hint_was_lost_is_taken_by_the_next_look(
    log: Log, other: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "POLL_FIRST", 0.1)
    async with log.session() as s:
        await deafen(s)
        await other.say(s.id, "did you hear me?")
        assert await s.wait(5)


async def test_an_item_that_came_while_the_connection_was_cut_is_taken_when_it_is_back(
    nats_url: str, other: Log
) -> None:
    async with (
        Network(nats_url, at=b"the cut", then="cut") as network,
        connect(nats=network.url, tenant=TENANT) as log,
        log.session() as s,
    ):
        await log.bus.say("test.here", b"the cut")
        await network.struck.wait()
        await other.say(s.id, "did you hear me?")
        assert await s.wait(listener.POLL_FIRST - 2)


def test_a_session_that_hears_nothing_looks_ever_less_often() -> None:
    after = partial(listener.pause_after, missed=False)
    assert list(map(after, [listener.POLL_FIRST, 20, 40, 80, 120])) == [20, 40, 80, 120, 120]
    assert listener.pause_after(120, missed=True) == listener.POLL_FIRST == 10


async def test_a_takeover_whose_hint_was_lost_stops_the_work_at_the_next_look(
    log: Log, other: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "POLL_FIRST", 0.1)
    async with log.session(key="k") as old:
        running = await endless_call(old)
        await deafen(old)
        async with other.session(key="k"), asyncio.timeout(5):
            with pytest.raises(Fenced):
                await running


async def test_a_takeover_that_is_heard_before_it_is_stored_is_found_when_it_is(
    log: Log, other: Log
) -> None:
    async with log.session() as s:
        running = await endless_call(s)
        last = (await stored(log, s.id))[-1]
        said = {"writer": {"number": 2, "id": "x" * 32}}
        taken = follow(last, type="session_resumed", payload=said, session=s.id)
        s.listener.check_takeover()
        await until(lambda: len(s.listener._tasks) > 1)
        await other.bus.append(
            names.log_subject(TENANT, s.id, "live"),
            [Outgoing(taken.body, {})],
            expected=last.sequence,
            timeout=5,
        )
        async with asyncio.timeout(4):
            with pytest.raises(Fenced):
                await running


async def test_an_item_that_is_heard_before_it_is_stored_is_taken_when_it_is(
    log: Log, other: Log
) -> None:
    async with log.session() as s:
        subject = names.inbox_subject(TENANT, s.id, "early")
        await other.bus.say(subject, b"a hint alone is no item")
        assert await until(
            lambda: s.state.counts.get("inbox_refused"), timeout=5
        )  # it was stored after all, as the inbox stream takes whatever is published
        await deafen(s)
        s.listener.expect_item((await _last_item(log, s.id)) + 1)
        await other.say(s.id, "now it is here")
        await until(lambda: s.state.counts.get("user_message") == 1)


async def test_an_item_is_taken_once_however_often_it_is_hinted_at(log: Log, other: Log) -> None:
    async with log.session() as s:
        sequence = await other.say(s.id, "once", message_id="m")
        for _ in range(20):
            s.listener.expect_item(sequence)
        await asyncio.gather(*(s.listener.take() for _ in range(20)))
        assert [m["content"] for m in await payloads(log, s.id, "user_message")] == ["once"]


async def test_taking_goes_on_when_whoever_waited_for_it_is_cancelled(log: Log, other: Log) -> None:
    async with log.session() as s:
        await deafen(s)
        for n in range(30):
            await other.say(s.id, n)
        waiting = asyncio.create_task(s.wait())
        await until(lambda: s.state.counts.get("user_message", 0) > 1)
        waiting.cancel()
        await until(lambda: s.state.counts.get("user_message") == 30)
        said = [m["content"] for m in await payloads(log, s.id, "user_message")]
        assert said == list(range(30))


async def test_nothing_is_taken_into_a_session_that_has_ended(log: Log, other: Log) -> None:
    async with log.session() as s:
        await s.end()
        await other.send(s.id, inbox.Cancel())
        await other.say(s.id, "hello?")
        await s.listener.take()
        assert await types(log, s.id) == ["session_started", "session_ended"]


async def _last_item(log: Log, session: str) -> int:
    items = [each async for each in inbox.received(log.bus, TENANT, session, after=0)]
    return items[-1].sequence
