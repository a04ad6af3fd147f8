"""What others ask of a session: stored once, taken once, in order, by its writer alone."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from flightlog import (
    AwaitUser,
    BusUnavailable,
    CallModel,
    Ended,
    InvalidName,
    Log,
    LogFull,
    Session,
    SessionEnded,
    Suspended,
    TooLarge,
    connect,
)
from flightlog.bus.nats_bus import connect_bus
from flightlog.bus.protocol import Outgoing
from flightlog.running import inbox
from flightlog.wire import subject as names
from flightlog_recorder.embedded import Server
from tests.scripted import TENANT, owed, payloads, types, until


async def put(log: Log, session: str, body: bytes) -> None:
    """Store a body in a session's inbox, whatever it is."""
    subject = names.inbox_subject(TENANT, session, names.mint())
    await log.bus.append(subject, [Outgoing(body, {})], expected=0, timeout=5)


async def test_a_resend_is_stored_once(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        first = await log.say(s.id, "hi", message_id="m1")
        assert await log.say(s.id, "hi", message_id="m1") == first
        await log.say(s.id, "there", message_id="m2")
        await until(lambda: s.state.counts.get("user_message") == 2)
        items = [each async for each in inbox.received(log.bus, TENANT, s.id, after=0)]
        assert [each.sequence for each in items] == [first, first + 1]
        assert [m["content"] for m in s.state.messages()] == ["hi", "there"]


async def test_items_of_another_process_are_taken_live_and_in_order(nats_url: str) -> None:
    async with (
        connect(nats=nats_url, tenant=TENANT) as log,
        connect(nats=nats_url, tenant=TENANT) as other,
        log.session() as s,
    ):
        for n in range(20):
            await other.say(s.id, f"message {n}")
        await until(lambda: s.state.counts.get("user_message") == 20)
        said = await payloads(log, s.id, "user_message")
    assert [each["content"] for each in said] == [f"message {n}" for n in range(20)]
    assert all(each["origin"] == "peer" for each in said)
    assert [each["inbox"] for each in said] == sorted({each["inbox"] for each in said})


async def test_wait_returns_when_the_inbox_has_changed_what_is_next(nats_url: str) -> None:
    async with (
        connect(nats=nats_url, tenant=TENANT) as log,
        connect(nats=nats_url, tenant=TENANT) as other,
        log.session() as s,
    ):
        assert owed(s) == AwaitUser()
        assert not await s.wait(0.05)
        waiting = asyncio.create_task(s.wait())
        await other.say(s.id, "wake up")
        assert await waiting
        assert owed(s) == CallModel()


async def test_items_sent_while_nobody_writes_are_taken_on_opening_and_only_once(
    nats_url: str,
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            pass
        await log.say(s.id, "while you were away")
        for _ in range(2):
            async with log.session(key="k") as s:
                assert s.state.counts["user_message"] == 1


async def test_a_cancel_ends_the_session_and_stops_its_tools(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as s:
            running = await _running(s)
            await log.send(s.id, inbox.Cancel(by="ann", reason="not needed"))
            with pytest.raises(SessionEnded):
                await running
            assert owed(s) == Ended("cancelled")
            with pytest.raises(SessionEnded):
                await s.user_message("but")
        assert (await types(log, s.id))[-1] == "session_ended"
        assert (await log.state(s.id)).reason == "not needed"


async def test_a_suspend_stops_the_work_and_leaves_it_to_be_resumed(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as s:
            running = await _running(s)
            waiting = asyncio.create_task(s.wait())
            await log.send(s.id, inbox.Suspend(by="ann", reason="node drained"))
            with pytest.raises(Suspended):
                await running
            with pytest.raises(Suspended):
                await waiting
        state = await log.state(s.id)
        assert (state.status, state.reason) == ("suspended", "node drained")
        assert [call.phase for call in state.calls] == ["running"]
        async with log.session(id=s.id) as again:
            await again.user_message("on we go")


async def test_what_nobody_can_read_is_refused_by_name_and_holds_nothing_up(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        bodies = [b"", b"\xff\x00", b"[]", b'{"kind":"dance"}', b'{"kind":"decision"}']
        for body in bodies:
            await put(log, s.id, body)
        await log.say(s.id, "at last")
        await until(lambda: s.state.counts.get("user_message") == 1)
        refused = await payloads(log, s.id, "inbox_refused")
        assert len(refused) == len(bodies)
        assert all("cannot read" in each["why"] for each in refused)


async def test_an_item_that_cannot_be_recorded_is_refused_and_holds_nothing_up(
    nats_url: str,
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        block = b'{"type":"x"},'  # no text that could be stored as a blob
        blocks = block * ((log.bus.max_payload - 400) // len(block))
        item = inbox.Say(content=msgspec.Raw(b"[" + blocks + block[:-1] + b"]"))
        await log.send(s.id, item)
        await log.say(s.id, "at last")
        await until(lambda: s.state.counts.get("user_message") == 1)
        (refused,) = await payloads(log, s.id, "inbox_refused")
        assert "too large" in refused["why"]


async def test_an_item_too_large_to_send_is_refused_as_such(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        with pytest.raises(TooLarge, match="an item for the inbox"):
            await log.say(s.id, "x" * log.bus.max_payload)


async def test_what_is_sent_and_what_is_recorded_is_redacted(nats_url: str) -> None:
    def redact(text: str) -> str:
        return text.replace("hunter2", "***")

    async with (
        connect(nats=nats_url, tenant=TENANT, redact=redact) as log,
        connect(nats=nats_url, tenant=TENANT) as careless,
        log.session() as s,
    ):
        await log.say(s.id, {"password": "hunter2"})
        bodies = await log.bus.page("FLIGHTLOG_inbox", f"flightlog.v1.inbox.{TENANT}.*.*", 1)
        assert all(b"hunter2" not in message.body for message in bodies.messages)
        await careless.say(s.id, ["hunter2"])
        await careless.send(s.id, inbox.Suspend(by="hunter2", reason="hunter2 leaked"))
        await until(lambda: s.state.status == "suspended")
        async for event in log.read(s.id):
            assert b"hunter2" not in event.body


@pytest.mark.parametrize("id", ["a.b", "*", ">", "", "ä", "x" * 65, "a b"])
async def test_ids_that_are_no_token_are_refused_before_anything_is_sent(
    nats_url: str, id: str
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        with pytest.raises(InvalidName):
            await log.say(id, "hi")
        with pytest.raises(InvalidName):
            await log.say("sess_1", "hi", message_id=id or ".")
        page = await log.bus.page("FLIGHTLOG_inbox", "flightlog.v1.inbox.*.*.*", 1)
        assert not page.messages


@pytest.mark.timeout(40)  # five tries of up to 5 s each
async def test_an_item_that_no_broker_acknowledged_says_so(nats_server: Server) -> None:
    async with connect(nats=nats_server.url, tenant=TENANT) as log:
        nats_server.kill()
        with pytest.raises(BusUnavailable):
            await log.say("sess_1", "hi", message_id="m")


async def test_a_full_inbox_says_so_and_takes_items_again_when_there_is_room(
    nats_url: str,
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await _resize(nats_url, 300)
        with pytest.raises(LogFull, match="FLIGHTLOG_inbox"):
            await log.say(s.id, "x" * 1_000, message_id="m")
        await _resize(nats_url, -1)
        await log.say(s.id, "x" * 1_000, message_id="m")
        await until(lambda: s.state.counts.get("user_message") == 1)


async def _resize(url: str, max_bytes: int) -> None:
    bus = await connect_bus(url)
    config = (await bus.api("STREAM.INFO.FLIGHTLOG_inbox"))["config"] | {"max_bytes": max_bytes}
    answered = await bus.api("STREAM.UPDATE.FLIGHTLOG_inbox", json.dumps(config).encode())
    assert "error" not in answered
    await bus.close()


async def _running(session: Session) -> "asyncio.Task[Any]":
    """A tool call that runs until it is stopped."""
    started = asyncio.Event()

    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(session.tool_call("t", call_id="c", run=endless))
    await started.wait()
    return task
