"""A stream is drained by minting: no session begins in it any more, and empty slots can move."""

from collections.abc import AsyncIterator

import pytest

import flightlog
from flightlog import Log
from flightlog.bus import nats_bus
from flightlog.bus.nats_bus import NatsBus
from flightlog.wire import layout
from tests.edited import edit
from tests.recorder.recorded import talk

KEPT, DRAINED = "FLIGHTLOG_0", "FLIGHTLOG_1"


@pytest.fixture
async def bare(nats_url: str) -> AsyncIterator[NatsBus]:
    """An operator's connection, to a broker with two log streams."""
    async with await nats_bus.connect_bare(nats_url) as bus:
        await nats_bus.create(bus, layout.log_configs(2) + layout.side_configs())
        yield bus


async def drain(bus: NatsBus) -> None:
    await edit(bus, DRAINED, metadata={"flightlog.wire": "1", "flightlog.draining": "yes"})


async def begun_in(log: Log) -> set[str]:
    """The streams in which sessions begin: by key, without one, and forks."""
    made = [await talk(log) for _ in range(6)]
    made += [await log.fork(session, at=2) for session in made]
    made += [await talk(log, key=f"scaling/{session}") for session in made[:6]]
    return {log.bus.layout.stream_of(session) for session in made}


async def test_sessions_begin_beside_a_draining_stream_and_go_on_in_it(
    bare: NatsBus, nats_url: str
) -> None:
    async with flightlog.connect(nats=nats_url) as log:
        ids = {key: await begin(log, key) for key in map(str, range(12))}
        there = {key for key, each in ids.items() if log.bus.layout.stream_of(each) == DRAINED}
    assert there
    await drain(bare)
    async with flightlog.connect(nats=nats_url) as log:
        assert await begun_in(log) == {KEPT}
        for key in there:
            assert await begin(log, key) == ids[key]


async def begin(log: Log, key: str) -> str:
    async with log.session(key=key) as session:
        return session.id


async def test_the_slots_of_an_empty_stream_can_move_to_another(
    bare: NatsBus, nats_url: str
) -> None:
    await drain(bare)
    found = {config["name"]: config for config in await bare.stream_configs()}
    gone, left = found[DRAINED]["subjects"][:-2], found[DRAINED]["subjects"][-2:]
    await edit(bare, DRAINED, subjects=left)
    await edit(bare, KEPT, subjects=found[KEPT]["subjects"] + gone)
    async with flightlog.connect(nats=nats_url) as log:
        assert log.bus.layout.slots.count(DRAINED) == 1
        assert await begun_in(log) == {KEPT}
