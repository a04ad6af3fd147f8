"""Beats: who writes which session, as far as one can hear."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from flightlog import Log, SessionLive, connect
from flightlog.bus.nats_bus import NatsBus, connect_bus
from flightlog.bus.protocol import Message, Outgoing
from flightlog.running import alive
from flightlog.running.alive import Beat
from flightlog.wire.subject import log_subject
from tests.handmade import follow
from tests.scripted import TENANT, types, until


@pytest.fixture
async def beats(nats_url: str) -> AsyncIterator[list[Beat]]:
    """Every beat of the tenant from now on."""
    heard: list[Beat] = []

    async def listen(message: Message) -> None:
        beat = alive.read(message.body)
        assert beat is not None
        heard.append(beat)

    bus = await connect_bus(nats_url)
    await bus.listen(f"flightlog.v1.alive.{TENANT}", listen)
    yield heard
    await bus.close()


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    bus = await connect_bus(nats_url)
    yield bus
    await bus.close()


async def test_a_process_says_which_sessions_it_opened_and_closed(
    nats_url: str, beats: list[Beat]
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await until(lambda: beats)
        assert beats[0].all == [s.id]
        assert beats[0].process
    await until(lambda: any(s.id in beat.closed for beat in beats))


async def test_beats_come_every_five_seconds(
    nats_url: str, beats: list[Beat], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert alive.BEAT_SECONDS == 5.0
    monkeypatch.setattr(alive, "BEAT_SECONDS", 0.05)
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await until(lambda: len(beats) >= 13)
        whole = [at for at, beat in enumerate(beats) if beat.all is not None]
        assert whole[:3] == [0, 6, 12]
        assert beats[6].all == [s.id]


async def test_a_process_that_writes_nothing_is_silent(
    nats_url: str, beats: list[Beat], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alive, "BEAT_SECONDS", 0.02)
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            await s.end()
        await until(lambda: any(s.id in beat.closed for beat in beats))
        count = len(beats)
        async with log.session(key="k"):
            await asyncio.sleep(0.2)
        assert len(beats) == count


async def test_who_writes_a_session_answers_at_once(nats_url: str, bus: NatsBus) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as s:
            async with asyncio.timeout(2):
                assert await alive.is_live(bus, TENANT, s.id, patience=10)
            assert not await alive.is_live(bus, TENANT, "sess_other", patience=0.2)
        assert not await alive.is_live(bus, TENANT, s.id, patience=0.2)


async def test_refuse_leaves_a_live_session_alone(nats_url: str) -> None:
    async with (
        connect(nats=nats_url, tenant=TENANT) as log,
        connect(nats=nats_url, tenant=TENANT) as other,
    ):
        async with log.session(key="k") as s:
            await s.user_message("mine")
            for each in (log, other):
                with pytest.raises(SessionLive):
                    async with each.session(key="k", on_live="refuse"):
                        pytest.fail("it must not open")
            await s.user_message("still mine")
            assert await types(log, s.id) == ["session_started", "user_message", "user_message"]
        async with other.session(key="k", on_live="refuse") as again:
            assert again.id == s.id


async def test_noise_on_the_subject_is_no_beat(nats_url: str, bus: NatsBus) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        for noise in (b"", b"\xff", b"[]", b'{"all":5}'):
            await bus.say(f"flightlog.v1.alive.{TENANT}", noise)
        assert alive.read(b"\xff") is None
        assert await alive.is_live(bus, TENANT, s.id, patience=5)


async def test_a_running_session_is_dead_after_three_missed_beats_and_no_sooner_without_a_catalog(
    nats_url: str, bus: NatsBus
) -> None:
    session = "sess_quiet"
    writer = {"writer": {"number": 1, "id": "w" * 32}}
    started = follow(None, type="session_started", payload=writer, session=session)
    live = log_subject(TENANT, session, "live")
    await bus.append(live, [Outgoing(started.body, {})], expected=0, timeout=5)
    async with connect(nats=nats_url, tenant=TENANT) as log:
        opening = asyncio.create_task(try_to_open(log, session))
        await asyncio.wait([opening], timeout=1)  # a beat is due every five seconds
        assert not opening.done()
        await bus.say(f"flightlog.v1.alive.{TENANT}", b'{"process":"p","all":["sess_quiet"]}')
        with pytest.raises(SessionLive):
            await opening


async def try_to_open(log: Log, session: str) -> None:
    async with log.session(id=session, on_live="refuse"):
        pass
