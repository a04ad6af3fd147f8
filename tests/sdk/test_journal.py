"""A session while it is written: what is acked is in the state, what is given up is not lost."""

import asyncio
import json
from typing import Any

import pytest

from flightlog import BusUnavailable, Event, LogFull, SessionEnded, TooLarge, connect
from flightlog.bus.nats_bus import connect_bus
from flightlog.writing import appender
from flightlog_recorder.embedded import Server
from tests.scripted import TENANT, Model, chain_is_whole, says, stored, types, until


async def resize(url: str, stream: str, max_bytes: int) -> None:
    """Change a stream's limit, as an operator does."""
    bus = await connect_bus(url)
    config = (await bus.api(f"STREAM.INFO.{stream}"))["config"] | {"max_bytes": max_bytes}
    answered = await bus.api(f"STREAM.UPDATE.{stream}", json.dumps(config).encode())
    assert "error" not in answered
    await bus.close()


async def test_the_state_holds_what_was_acked_when_the_append_returns(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:

        async def note(n: int) -> Event:
            event = await s.append("note", n)
            assert s.state.seq >= event.seq
            return event

        events = await asyncio.gather(*(note(n) for n in range(200)))
        assert [event.payload for event in events] == list(range(200))
        assert [event.seq for event in events] == list(range(2, 202))
        assert chain_is_whole(await stored(log, s.id))
        assert (await log.state(s.id)).digest == s.state.digest


async def test_a_busy_appender_does_not_hold_up_a_model_call(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:

        async def chatter() -> None:
            while True:
                await s.append("note", 1)

        busy = [asyncio.create_task(chatter()) for _ in range(3)]
        await until(lambda: s.state.counts.get("note", 0) > 5)
        async with asyncio.timeout(5):
            await s.model_call({"messages": []}, call=Model(says("hi")))
            await s.value("v", lambda: 1)
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)


async def test_a_deadline_gives_up_waiting_and_not_the_event(nats_server: Server) -> None:
    async with connect(nats=nats_server.url, tenant=TENANT) as log, log.session() as s:
        nats_server.pause()
        with pytest.raises(BusUnavailable, match=s.id):
            await s.append("note", "sent", deadline=0.2)
        with pytest.raises(BusUnavailable):
            await s.append("note", "never sent", deadline=0.2)
        nats_server.resume()
        await s.append("note", "later", deadline=3_600)
        events = await stored(log, s.id)
    assert [event.payload for event in events[1:]] == ["sent", "later"]
    assert chain_is_whole(events)


async def test_a_cancellation_gives_up_waiting_and_not_the_event(nats_server: Server) -> None:
    async with connect(nats=nats_server.url, tenant=TENANT) as log, log.session() as s:
        nats_server.pause()
        tasks = [asyncio.create_task(s.append("note", n)) for n in range(3)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in done)
        nats_server.resume()
        await s.append("note", "later")
        events = await stored(log, s.id)
    assert [event.payload for event in events[1:]] == [0, "later"]
    assert chain_is_whole(events)


async def test_what_is_queued_at_the_end_of_the_block_is_stored_before_it_is_left(
    nats_url: str,
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as s:
            tasks = [asyncio.create_task(s.append("note", n)) for n in range(300)]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        recorded = await types(log, s.id)
    assert recorded == ["session_started", *["note"] * 300, "session_suspended"]


async def test_the_queue_is_bounded_and_appends_wait_for_room(nats_server: Server) -> None:
    large = "x" * 900_000
    async with connect(nats=nats_server.url, tenant=TENANT) as log, log.session() as s:
        nats_server.pause()
        tasks = [asyncio.create_task(s.append("note", large)) for _ in range(14)]
        await asyncio.sleep(0.05)
        assert s._journal.appender is not None
        assert s._journal.appender._queued_bytes <= appender.QUEUE_BYTES
        with pytest.raises(BusUnavailable):
            await s.append("note", large, deadline=0.1)
        nats_server.resume()
        await asyncio.gather(*tasks)
        assert (await types(log, s.id)).count("note") == 14


async def test_a_full_stream_refuses_and_goes_on_when_there_is_room_again(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            stream = log.bus.layout.stream_of(s.id)
            await s.user_message("fits")
            await resize(nats_url, stream, 2_000)
            with pytest.raises(LogFull, match=stream):
                await s.append("note", "x" * 4_000)
            with pytest.raises(LogFull):
                await s.end(result="x" * 4_000)
            await resize(nats_url, stream, -1)
            await s.append("note", "x" * 4_000)
            result = await s.tool_call("t", call_id="c", run=lambda: "ran")
            assert result.output == "ran"
            await s.end()
        assert chain_is_whole(await stored(log, s.id))


async def test_a_full_stream_opens_nothing_and_says_so(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            await s.user_message("fits")
        await resize(nats_url, log.bus.layout.stream_of(s.id), 500)
        with pytest.raises(LogFull):
            async with log.session(key="k"):
                pytest.fail("it must not open")
        await resize(nats_url, log.bus.layout.stream_of(s.id), -1)
        async with log.session(key="k") as again:
            assert again.id == s.id


async def test_two_mib_of_what_a_fold_reads_are_too_large_before_anything_is_sent(
    nats_url: str,
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        text = "secret" * 350_000
        blocks = [{"type": "secret", "text": ""}] * 80_000
        attempts: list[Any] = [
            s.user_message(blocks),
            s.user_message("x", once=text),
            s.append("user_message", {"content": blocks}),
            s.checkpoint(1, label=text),
            s.value(text, lambda: 1),
            s.compact(blocks, keep_from=1),
            s.tool_call("t", {}, call_id=text, run=pytest.fail),
            s.model_call({"messages": [{"role": "user", "content": blocks}]}, call=pytest.fail),
        ]
        for attempt in attempts:
            with pytest.raises(TooLarge) as refused:
                await attempt
            assert refused.value.size > 2_000_000 > refused.value.limit > 1_000_000
            assert refused.value.field in str(refused.value)
            assert "secretsecret" not in str(refused.value)
        await s.user_message("still here")
        assert await types(log, s.id) == ["session_started", "user_message"]


async def test_twelve_mib_of_text_are_taken_wherever_an_author_puts_them(nats_url: str) -> None:
    text = 'a "b"\n' * 2_000_000
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await s.user_message(text)
        await s.append("note", {"deep": [{"er": text}]})
        await s.checkpoint({"t": text})
        assert await s.value("v", lambda: [text]) == [text]
        assert await s.hook("h", text, run=lambda event: event) == text
        result = await s.tool_call("t", {"x": text}, call_id="c", run=lambda x: x)
        assert result.output == text
        asked = {"messages": s.state.messages(), "system": text}
        await s.model_call(asked, call=lambda **_: {"role": "assistant", "content": text})
        assert s.state.messages()[1]["content"] == text
        assert (s.state.saved, await s.value("v", lambda: 0)) == ({"t": text}, [text])
        assert await s.tool_call("t", {"x": text}, call_id="c", run=pytest.fail) == result
        await s.compact(text, keep_from=s.state.seq)
        await s.end(result=text)
        async for event in log.read(s.id):
            assert len(event.body) < 1_000


async def test_nothing_is_appended_to_a_session_that_has_ended(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as s:
            await s.end()
            for attempt in (s.append("note", 1), s.checkpoint(1), s.user_message("x")):
                with pytest.raises(SessionEnded, match="reopen"):
                    await attempt
        assert await types(log, s.id) == ["session_started", "session_ended"]
