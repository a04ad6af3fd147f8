"""A connection to one tenant's log: connecting, reading, listing, speaking to sessions."""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from flightlog import (
    BusUnavailable,
    FlightlogError,
    InvalidName,
    LayoutRefused,
    NoSuchSession,
    NotPermitted,
    connect,
)
from flightlog.bus.nats_bus import connect_bus
from flightlog_recorder.embedded import Server
from tests.scripted import TENANT, stored, types

MakeNats = Callable[..., Server]


async def test_connect_takes_the_environment_for_what_it_is_not_given(
    nats_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLIGHTLOG_NATS_URL", nats_url)
    monkeypatch.setenv("FLIGHTLOG_REDIS_URL", redis_url)
    monkeypatch.setenv("FLIGHTLOG_TENANT", "from-env")
    async with connect() as log:
        assert log.tenant == "from-env"
        assert log.store is not None
        async with log.session() as s:
            pass
    async with connect(tenant="other") as log:
        with pytest.raises(NoSuchSession):
            await log.state(s.id)


async def test_an_empty_broker_on_loopback_is_provisioned_unless_that_is_refused(
    nats_url: str,
) -> None:
    with pytest.raises(LayoutRefused, match="flightlog provision"):
        async with connect(nats=nats_url, provision=False):
            pytest.fail("it must not connect")
    async with connect(nats=nats_url), connect(nats=nats_url, provision=False) as log:
        assert log.bus.layout.streams == ("FLIGHTLOG_0",)


@pytest.mark.parametrize("tenant", ["a.b", "*", ">", "a b", "ä", "", "x" * 65, "a:b", "a@b", "a\n"])
async def test_a_tenant_that_is_no_token_is_refused_without_being_repeated(tenant: str) -> None:
    with pytest.raises(InvalidName) as refused:
        async with connect(nats="nats://127.0.0.1:1", tenant=tenant):
            pytest.fail("it must not connect")
    assert not tenant or f"{tenant} is refused" not in str(refused.value)


async def test_no_bus_is_said_within_the_timeout_without_the_password() -> None:
    async with asyncio.timeout(3):
        with pytest.raises(BusUnavailable) as refused:
            async with connect(nats="nats://user:hunter2@127.0.0.1:1", timeout=0.5):
                pytest.fail("it must not connect")
    assert "127.0.0.1:1" in str(refused.value)
    assert "hunter2" not in str(refused.value)


async def test_a_bus_that_does_not_answer_is_given_up(nats_server: Server) -> None:
    nats_server.pause()
    async with asyncio.timeout(3):
        with pytest.raises(BusUnavailable):
            async with connect(nats=nats_server.url, timeout=0.5):
                pytest.fail("it must not connect")
    nats_server.resume()


async def test_a_bus_without_jetstream_is_named(make_nats: MakeNats) -> None:
    with pytest.raises(LayoutRefused, match="JetStream"):
        async with connect(nats=make_nats(jetstream=False).url):
            pytest.fail("it must not connect")


async def test_a_wrong_password_is_not_permitted_and_not_repeated(make_nats: MakeNats) -> None:
    access = 'authorization { user: ann, password: "right" }'
    server = make_nats(access=access)
    url = server.url.replace("nats://", "nats://ann:hunter2@")
    with pytest.raises(NotPermitted) as refused:
        async with connect(nats=url):
            pytest.fail("it must not connect")
    assert "hunter2" not in str(refused.value)


async def test_a_stream_with_other_settings_is_refused_by_field(nats_url: str) -> None:
    bus = await connect_bus(nats_url)
    answered = await bus.api("STREAM.INFO.FLIGHTLOG_0")
    config = answered["config"] | {"max_age": 3_600_000_000_000}
    assert "error" not in await bus.api("STREAM.UPDATE.FLIGHTLOG_0", json.dumps(config).encode())
    await bus.close()
    with pytest.raises(LayoutRefused, match=r"FLIGHTLOG_0.*max_age"):
        async with connect(nats=nats_url):
            pytest.fail("it must not connect")


async def test_reading_gives_a_part_of_a_session_in_order(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as s:
            for n in range(5):
                await s.append("note", n)
        part = [event.seq async for event in log.read(s.id, after=2, until=4)]
        assert part == [3, 4]
        assert [e.payload async for e in log.read(s.id) if e.type == "note"] == [0, 1, 2, 3, 4]
        assert [event async for event in log.read("sess_nobody")] == []


async def test_the_state_is_that_after_any_event(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as s:
            for n in range(5):
                await s.append("note", n)
        for at in (1, 3, 6):
            state = await log.state(s.id, at=at)
            assert state.seq == at
            assert state.counts.get("note", 0) == at - 1
        assert (await log.state(s.id)).seq == 7


async def test_reading_and_asking_append_nothing(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            pass
        before = await types(log, s.id)
        await log.state(s.id)
        await log.fold(s.id, at=1)
        assert await log.look_up("k") == s.id
        assert await log.look_up("nobody's") is None
        assert await types(log, s.id) == before


@pytest.mark.parametrize("id", ["a.b", "*", ">", "", "a b", "ä", "x" * 65, "a\nb", "a:b", "a@b"])
async def test_ids_that_are_no_token_are_refused_everywhere(nats_url: str, id: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        with pytest.raises(InvalidName):
            async with log.session(id=id):
                pytest.fail("it must not open")
        with pytest.raises(InvalidName):
            await log.state(id)
        with pytest.raises(InvalidName):
            await stored(log, id)
        with pytest.raises(InvalidName):
            async with log.watch(id):
                pytest.fail("it must not listen")


async def test_listing_without_a_catalog_says_what_is_missing(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        with pytest.raises(FlightlogError, match="redis"):
            await log.sessions()


async def test_whoever_watches_hears_each_append(nats_url: str) -> None:
    async with (
        connect(nats=nats_url, tenant=TENANT) as log,
        connect(nats=nats_url, tenant=TENANT) as other,
        log.session() as s,
        log.watch(s.id) as mine,
        other.watch(s.id) as theirs,
    ):
        await s.user_message("hi")
        last = (await stored(log, s.id))[-1]
        assert (await mine.get()).body == (await theirs.get()).body == last.body


async def test_a_redis_that_is_gone_is_named_in_the_log_without_its_password(
    nats_url: str, redis_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    redis_server.kill()
    with caplog.at_level(logging.WARNING):
        async with connect(nats=nats_url, redis=redis_server.url) as log, log.session():
            pass
    assert "going on without Redis" in caplog.text
    assert redis_server.url.split("@")[0] not in caplog.text


async def test_twenty_connections_at_once_provision_an_empty_broker_once(nats_url: str) -> None:
    async def work(n: int) -> Any:
        async with connect(nats=nats_url, tenant=TENANT) as log, log.session(key=str(n)) as s:
            await s.end()
            return log.bus.layout

    layouts = await asyncio.gather(*(work(n) for n in range(20)))
    assert len({layout.streams for layout in layouts}) == 1
