"""What people and machines get wrong: one clear error or a marked value, and nothing lost."""

import asyncio
import contextlib
import json
import math
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from flightlog import (
    BusUnavailable,
    InvalidName,
    InvalidValue,
    LayoutRefused,
    Log,
    NotPermitted,
    connect,
)
from flightlog.running import inbox
from flightlog.wire import carry
from flightlog_recorder.embedded import Server
from tests.scripted import TENANT, chain_is_whole, payloads, stored, types, until

MakeNats = Callable[..., Server]

ODD_TEXTS = [".", "*", ">", ":", "a@b", "a b", "a\nb", "ümläut", "x" * 300, "a/../b", "$KV.x"]


@pytest.fixture
async def log(nats_url: str) -> AsyncIterator[Log]:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        yield log


@pytest.mark.parametrize("text", ODD_TEXTS, ids=ascii)
async def test_any_text_is_a_key_and_none_of_these_is_an_id_or_a_tenant(
    log: Log, nats_url: str, text: str
) -> None:
    async with log.session(key=text) as s:
        assert s.key == text
    async with log.session(key=text) as again:
        assert again.id == s.id
    with pytest.raises(InvalidName):
        async with log.session(id=text):
            pytest.fail("it must not open")
    with pytest.raises(InvalidName):
        async with connect(nats=nats_url, tenant=text):
            pytest.fail("it must not connect")


@pytest.mark.parametrize(
    "value",
    [
        math.inf,
        -math.inf,
        "\ud800 alone",
        b"\x00\xff",
        2**64,
        -(2**63) - 1,
        10**5_000,
        {"\ud800": 1},
        {1: "a", (2, 3): b"b"},
        {"$flightlog": "float", "value": "1"},
        {"nested": [{"deep": (math.inf, {"\udfff"[:1]: b""})}]},
        "\0\x1b[31m",
        "",
        None,
    ],
    ids=lambda value: type(value).__name__,
)
async def test_values_that_json_cannot_hold_come_back_as_they_were(log: Log, value: Any) -> None:
    async with log.session(key="k") as s:
        first = await s.value("v", lambda: value)
        result = await s.tool_call("t", {"x": value}, call_id="c", run=lambda x: x)
        await s.user_message({"content": value})
        await s.checkpoint(value)
    async with log.session(key="k") as s:
        assert s.state.checkpoint is not None
        again = [await s.value("v", lambda: None), carry.unpack(s.state.checkpoint.data)]
    assert again == [first, first]
    assert first == result.output == _listed(value)
    assert chain_is_whole(await stored(log, s.id))


async def test_not_a_number_stays_one(log: Log) -> None:
    async with log.session() as s:
        assert math.isnan(await s.value("v", lambda: math.nan))
        (recorded,) = await payloads(log, s.id, "value_recorded")
        assert math.isnan(recorded["value"])


async def test_a_thousand_levels_are_refused_and_the_session_goes_on(log: Log) -> None:
    deep: Any = []
    for _ in range(1_000):
        deep = [deep]
    async with log.session() as s:
        for attempt in (
            s.user_message(deep),
            s.append("note", deep),
            s.tool_call("t", {"x": deep}, call_id="c", run=pytest.fail),
            s.model_call({"messages": [], "tools": deep}, call=pytest.fail),
            s.end(result=deep),
        ):
            with pytest.raises(InvalidValue, match="nested deeper"):
                await attempt
        with pytest.raises(InvalidValue):
            await log.say(s.id, deep)
        await s.user_message("still here")
        assert await types(log, s.id) == ["session_started", "user_message"]


async def test_a_name_that_is_no_text_is_refused_and_the_session_goes_on(log: Log) -> None:
    async with log.session() as s:
        for attempt in (
            s.tool_call("\ud800", {}, call_id="c", run=pytest.fail),
            s.tool_call("t", {}, call_id="\ud800", run=pytest.fail),
            s.value("\ud800", lambda: 1),
            s.hook("\ud800", 1, run=pytest.fail),
            s.checkpoint(1, label="\ud800"),
            s.end(error="\ud800"),
            s.suspend("\ud800"),
        ):
            with pytest.raises(InvalidValue):
                await attempt
        await s.user_message("still here")
        assert await types(log, s.id) == ["session_started", "user_message"]


async def test_missing_permissions_are_named_soon_and_nothing_hangs(make_nats: MakeNats) -> None:
    access = """authorization { users: [
      { user: admin, password: "a" },
      { user: reader, password: "r", permissions: {
        publish: ["$JS.API.STREAM.LIST", "$JS.API.DIRECT.GET.>", "$JS.API.STREAM.MSG.GET.>",
                  "$KV.>", "flightlog.v1.alive.>"],
        subscribe: ["_INBOX.>", "flightlog.v1.>"] } } ] }"""
    server = make_nats(access=access)
    admin, reader = (server.url.replace("//", f"//{who}@") for who in ("admin:a", "reader:r"))
    async with connect(nats=admin, tenant=TENANT, provision=True) as log, log.session(key="k"):
        pass
    async with connect(nats=reader, tenant=TENANT) as log:
        async with asyncio.timeout(8):
            with pytest.raises(NotPermitted, match=r"publish to flightlog\.v1\."):
                async with log.session(key="k"):
                    pytest.fail("it must not open")
        session = await log.look_up("k")
        assert session is not None
        async with asyncio.timeout(8):
            with pytest.raises(NotPermitted):
                await log.send(session, inbox.Cancel())
        assert await types(log, session) == ["session_started", "session_suspended"]


async def test_permissions_that_are_taken_away_end_the_work_with_a_word(
    make_nats: MakeNats,
) -> None:
    def access(more: str) -> str:
        return f'authorization {{ users: [ {{ user: a, password: "a"{more} }} ] }}'

    server = make_nats(access=access(""))
    url = server.url.replace("//", "//a:a@")
    async with connect(nats=url, tenant=TENANT) as log:
        with pytest.raises(NotPermitted):
            async with log.session() as s:
                running = asyncio.create_task(s.tool_call("t", call_id="c", run=_endless))
                await until(lambda: s.state.seq == 2)
                denied = ', permissions: { publish: { deny: ["flightlog.>"] } }'
                _reload(server, old=access(""), new=access(denied))
                async with asyncio.timeout(10):
                    with pytest.raises(NotPermitted):
                        while True:
                            await s.append("note", 1)
                    await running


async def test_an_older_server_is_refused_by_version() -> None:
    info = {"server_id": "x", "version": "2.10.29", "max_payload": 1 << 20, "headers": True}
    async with greeter(b"INFO " + json.dumps(info).encode() + b"\r\n") as url:
        with pytest.raises(LayoutRefused, match=r"2\.10\.29.*too old.*2\.15"):
            async with connect(nats=url):
                pytest.fail("it must not connect")


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\x15\x03\x01"])
async def test_what_speaks_no_nats_is_no_bus(greeting: bytes) -> None:
    async with greeter(greeting) as url, asyncio.timeout(4):
        with pytest.raises(BusUnavailable, match=url.removeprefix("nats://")):
            async with connect(nats=url, timeout=1):
                pytest.fail("it must not connect")


@asynccontextmanager
async def greeter(greeting: bytes) -> AsyncGenerator[str]:
    """Something that greets whoever connects, and answers PING as NATS does."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
        writer.close()
        gone.set()

    gone = asyncio.Event()
    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await gone.wait()


async def _endless() -> None:
    await asyncio.Event().wait()


def _listed(value: Any) -> Any:
    """JSON has lists only; all else comes back as it was."""
    if isinstance(value, list | tuple):
        return [_listed(item) for item in value]
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return value


def _reload(server: Server, *, old: str, new: str) -> None:
    """Change the running server's settings."""
    config = server.home / "nats.conf"
    config.write_text(config.read_text().replace(old, new))
    os.kill(server.pid, signal.SIGHUP)
