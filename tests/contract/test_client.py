"""Asking on a real server: each request has its own deadline, and none is sent late."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from nats import errors
from nats.aio.msg import Msg

from flightlog.bus.client import Client
from flightlog.bus.nats_bus import NatsBus, connect_bus
from flightlog.bus.protocol import Message
from flightlog_recorder.embedded import Server

ECHO = "test.echo"


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    async with await connect_bus(nats_url) as connected:
        yield connected


@pytest.fixture
async def client(bus: NatsBus) -> Client:
    return await bus.client()


async def test_many_requests_at_once_each_get_their_own_answer(
    bus: NatsBus, client: Client
) -> None:
    async def echo(msg: Msg) -> None:
        await msg.respond(msg.data)

    async with await bus.twin(echo=True) as other:
        answering = await other.client()
        await answering.subscribe(ECHO, cb=echo)
        await answering.flush()
        asked = [b"%d" % n for n in range(200)]
        found = await asyncio.gather(*(client.ask(ECHO, each, timeout=5) for each in asked))
    assert [each.data for each in found] == asked


async def test_each_request_fails_at_its_own_deadline_whatever_order_they_came_in(
    nats_server: Server, client: Client
) -> None:
    given_up: list[float] = []

    async def ask(timeout: float) -> None:
        with pytest.raises(errors.TimeoutError):
            await client.ask("$JS.API.INFO", b"", timeout=timeout)
        given_up.append(timeout)

    await client.ask("$JS.API.INFO", b"", timeout=5)
    nats_server.pause()
    try:
        await asyncio.gather(*map(ask, (0.3, 0.1, 0.4, 0.2)))
    finally:
        nats_server.resume()
    assert given_up == [0.1, 0.2, 0.3, 0.4]
    await client.ask("$JS.API.INFO", b"", timeout=5)


async def test_a_request_that_nobody_serves_is_told_so(client: Client) -> None:
    with pytest.raises(errors.NoRespondersError):
        await client.ask(ECHO, b"", timeout=5)


async def test_a_request_that_would_close_the_connection_is_not_sent(client: Client) -> None:
    with pytest.raises(errors.MaxPayloadError):
        await client.ask(ECHO, b"x" * client.max_payload, headers=b"NATS/1.0\r\n\r\n", timeout=5)
    assert client.is_connected


async def test_a_message_of_others_cannot_pass_for_an_answer(
    nats_server: Server, bus: NatsBus, client: Client
) -> None:
    heard: list[bytes] = []

    async def hear(message: Message) -> None:
        heard.append(message.body)

    await bus.listen("test.*", hear)
    await client.ask("$JS.API.INFO", b"", timeout=5)
    nats_server.pause()
    try:
        asking = asyncio.create_task(client.ask("$JS.API.INFO", b"", timeout=5))
        await asyncio.sleep(0)
        inbox = next(iter(client._asked)).rpartition(b".")[2]
        await bus.say(f"test.{inbox.decode()}", b"forged")
    finally:
        nats_server.resume()
    assert b"forged" not in (await asking).data
    while heard != [b"forged"]:
        await asyncio.sleep(0.01)


async def test_a_request_while_the_link_is_down_raises_at_once_and_is_not_sent_later(
    nats_server: Server, bus: NatsBus, client: Client
) -> None:
    nats_server.kill()
    while client.is_connected:
        await asyncio.sleep(0.01)
    with pytest.raises(errors.ConnectionReconnectingError):
        await client.ask(ECHO, b"late", timeout=5)
    assert client.pending_data_size == 0
    nats_server.start()
    while not bus.connected:
        await asyncio.sleep(0.01)
    await client.ask("$JS.API.INFO", b"", timeout=5)
