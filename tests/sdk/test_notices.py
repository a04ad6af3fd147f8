"""Notices from a real durable consumer: delivered, acknowledged, or delivered again."""

from collections.abc import AsyncIterator

import pytest

from flightlog.bus.answer import Acked
from flightlog.bus.nats_bus import NatsBus, connect_bus
from flightlog.bus.notices import Notices
from flightlog.bus.protocol import Outgoing
from flightlog.errors import BusUnavailable
from flightlog_recorder.embedded import Server

STREAM = "FLIGHTLOG_0"
SUBJECT = "flightlog.v1.0.acme.s.live"


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    connected = await connect_bus(nats_url)
    yield connected
    await connected.close()


async def store(bus: NatsBus, count: int, *, after: int = 0) -> None:
    messages = [Outgoing(b"x" * 1_000, {"Flightlog-Type": "note"})] * count
    assert isinstance(await bus.append(SUBJECT, messages, expected=after, timeout=5), Acked)


async def opened(bus: NatsBus) -> Notices:
    notices = Notices(bus, STREAM, "projector")
    await notices.open()
    return notices


async def take(notices: Notices, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        got = await notices.fetch(count - len(found), 5)
        assert got
        found += [notice.sequence for notice in got]
    return found


async def test_a_notice_names_the_message_and_not_its_body(bus: NatsBus) -> None:
    await store(bus, 1)
    (notice,) = await (await opened(bus)).fetch(10, 5)
    assert (notice.subject, notice.sequence, notice.type) == (SUBJECT, 1, "note")
    assert notice.delivered == 1


async def test_nothing_to_tell_is_told_in_time(bus: NatsBus) -> None:
    assert await (await opened(bus)).fetch(10, 0.05) == []


async def test_what_comes_while_one_waits_is_told_at_once(bus: NatsBus) -> None:
    notices = await opened(bus)
    assert await notices.fetch(10, 0.01) == []
    await store(bus, 3)
    assert await take(notices, 3) == [1, 2, 3]


async def test_what_is_acknowledged_does_not_come_again_and_the_rest_goes_to_others(
    bus: NatsBus,
) -> None:
    await store(bus, 20)
    first = await opened(bus)
    got = await first.fetch(100, 5)
    while len(got) < 20:
        got += await first.fetch(100, 5)
    await first.ack(got[:15])
    standing = await first.info()
    while standing.ack_floor < 15:
        standing = await first.info()
    assert (standing.delivered, standing.pending, standing.ack_pending) == (20, 0, 5)


async def test_more_than_one_pull_gives_comes_all_the_same(bus: NatsBus) -> None:
    for n in range(45):
        await store(bus, 250, after=n * 250)
    notices = await opened(bus)
    assert await take(notices, 11_250) == list(range(1, 11_251))


async def test_a_broker_that_is_away_is_said_to_be(bus: NatsBus, nats_server: Server) -> None:
    notices = await opened(bus)
    await notices.fetch(1, 0.01)
    nats_server.kill()
    with pytest.raises(BusUnavailable):
        await take_for_ever(notices)
    with pytest.raises(BusUnavailable):
        await notices.info()


async def take_for_ever(notices: Notices) -> None:
    while True:
        await notices.fetch(1, 0.1)


async def test_a_consumer_that_is_there_is_taken_as_it_is(bus: NatsBus) -> None:
    await (await opened(bus)).close()
    notices = await opened(bus)
    await store(bus, 1)
    assert await take(notices, 1) == [1]
