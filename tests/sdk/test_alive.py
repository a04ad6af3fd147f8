"""Beats: who writes which session, as far as one can hear."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from flightlog import Log, SessionLive, connect
from flightlog.bus.answer import Acked
from flightlog.bus.nats_bus import NatsBus, connect_bus
from flightlog.bus.protocol import Message, Outgoing
from flightlog.event import Event
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
    session, _ = await left_by(bus, "w" * 32)
    async with connect(nats=nats_url, tenant=TENANT) as log:
        opening = asyncio.create_task(try_to_open(log, session))
        await asyncio.wait([opening], timeout=1)  # a beat is due every five seconds
        assert not opening.done()
        await bus.say(f"flightlog.v1.alive.{TENANT}", b'{"process":"p","all":["sess_quiet"]}')
        with pytest.raises(SessionLive):
            await opening


async def left_by(bus: NatsBus, *writers: str) -> tuple[str, list[Event]]:
    """A session that writers took one after the other, of which nobody says that he is alive."""
    session, events = "sess_quiet", list[Event]()
    for number, writer in enumerate(writers, 1):
        kind = "session_resumed" if events else "session_started"
        said = {"writer": {"number": number, "id": writer}}
        last = events[-1] if events else None
        events.append(follow(last, type=kind, payload=said, session=session))
    await store(bus, session, events)
    return session, events


async def store(bus: NatsBus, session: str, events: list[Event], *, after: int = 0) -> None:
    live = log_subject(TENANT, session, "live")
    bodies = [Outgoing(event.body, {}) for event in events]
    for number, body in enumerate(bodies, after):
        assert isinstance(await bus.append(live, [body], expected=number, timeout=5), Acked)


async def test_a_writer_that_is_known_to_be_gone_is_not_waited_for(
    nats_url: str, bus: NatsBus
) -> None:
    session, _ = await left_by(bus, "v" * 32, "w" * 32)
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with asyncio.timeout(alive.SILENCE / 2):
            for other in ("v" * 32, "w" * 31 + "v"):
                with pytest.raises(SessionLive):
                    await try_to_open(log, session, gone=other)
            await try_to_open(log, session, gone="w" * 16)
        assert (await log.state(session)).writer == 3


async def test_a_writer_who_is_said_to_be_gone_and_answers_keeps_his_session(
    nats_url: str,
) -> None:
    async with (
        connect(nats=nats_url, tenant=TENANT) as log,
        connect(nats=nats_url, tenant=TENANT) as other,
        log.session() as session,
    ):
        with pytest.raises(SessionLive):
            await try_to_open(other, session.id, gone=session.state.writer_id)
        await session.user_message("still mine")


async def test_a_writer_who_comes_while_it_is_listened_for_the_last_one_is_not_fenced(
    nats_url: str, bus: NatsBus
) -> None:
    session, [started] = await left_by(bus, "v" * 32)
    asked = asyncio.Event()

    async def listen(message: Message) -> None:
        beat = alive.read(message.body)
        if beat is not None and beat.asks == session:
            asked.set()

    listening = await bus.listen(f"flightlog.v1.alive.{TENANT}", listen)
    async with connect(nats=nats_url, tenant=TENANT) as log:
        opening = asyncio.create_task(try_to_open(log, session, gone="v" * 32))
        await asked.wait()
        said = {"writer": {"number": 2, "id": "w" * 32}}
        resumed = follow(started, type="session_resumed", payload=said, session=session)
        await store(bus, session, [resumed], after=1)
        with pytest.raises(SessionLive):
            await opening
        assert (await log.state(session)).writer == 2
    await listening.close()


async def try_to_open(log: Log, session: str, *, gone: str | None = None) -> None:
    async with log.session(id=session, on_live="refuse", gone=gone):
        pass
