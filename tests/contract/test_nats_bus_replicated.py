"""The bus protocol on three replicas: they differ from one in lag and leaders, not in answers."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from flightlog.bus import nats_bus
from flightlog.bus.answer import Acked, Answer, Conflict, Unclear
from flightlog.bus.nats_bus import NatsBus, connect_bare, connect_bus
from flightlog.bus.protocol import Message, Outgoing
from flightlog.wire import subject
from tests.cluster import Cluster

SUBJECT = subject.log_subject("acme", "one", "live")
STREAM = "FLIGHTLOG_0"

# Three servers start and elect; each test then takes a few seconds.
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def bus(cluster: Cluster) -> AsyncIterator[NatsBus]:
    async with await connect_bare(cluster.url) as bare:
        await nats_bus.create_streams(bare, replicas=3)
    async with await connect_bus(cluster.url) as connected:
        yield connected


async def append(bus: NatsBus, *bodies: bytes, expected: int) -> Answer:
    messages = [Outgoing(body, {}) for body in bodies]
    return await bus.append(SUBJECT, messages, expected=expected, timeout=2)


async def test_answers_on_three_replicas_are_those_of_one(bus: NatsBus) -> None:
    assert bus.layout.replicas == 3
    assert await append(bus, b"a", expected=0) == Acked(STREAM, 1)
    assert await append(bus, b"b", b"c", b"d", expected=1) == Acked(STREAM, 4)
    assert await append(bus, b"x", expected=1) == Conflict(4)
    assert await append(bus, b"x", b"y", expected=1) == Conflict(4)
    assert await bus.last(STREAM, SUBJECT) == Message(SUBJECT, 4, b"d")


async def test_of_racing_writers_one_wins_and_the_others_leave_nothing(bus: NatsBus) -> None:
    last, won = 0, 0
    for _ in range(20):
        answers = await asyncio.gather(
            *(append(bus, b"%d" % n, b"and", expected=last) for n in range(6))
        )
        assert all(isinstance(each, Acked | Conflict | Unclear) for each in answers)
        acked = [each for each in answers if isinstance(each, Acked)]
        assert len(acked) <= 1
        won += len(acked)
        found = await bus.last(STREAM, SUBJECT)
        last = found.sequence if found else 0
    assert won > 0
    assert last % 2 == 0


async def test_the_leader_shows_what_was_acked_even_while_a_replica_lags(bus: NatsBus) -> None:
    last = 0
    for n in range(100):
        answer = await append(bus, b"%d" % n, expected=last)
        assert isinstance(answer, Acked)
        found = await bus.after(STREAM, SUBJECT, last, leader=True)
        assert found == Message(SUBJECT, answer.sequence, b"%d" % n)
        last = answer.sequence


async def test_appends_go_on_when_the_leader_is_killed(cluster: Cluster, bus: NatsBus) -> None:
    assert await append(bus, b"a", expected=0) == Acked(STREAM, 1)
    info = await bus.api(f"STREAM.INFO.{STREAM}", json.dumps({}).encode())
    cluster.node(info["cluster"]["leader"]).kill()
    answer: Answer = Unclear("")
    while not isinstance(answer, Acked | Conflict):
        answer = await append(bus, b"b", b"c", expected=1)
        await asyncio.sleep(0.05)
    assert answer in (Acked(STREAM, 3), Conflict(3))
    assert (await bus.after(STREAM, SUBJECT, 1, leader=True)) == Message(SUBJECT, 2, b"b")
