"""The broker killed and restarted in the middle of appends: each ack is in the log, once."""

import asyncio
from typing import Any

import pytest

from flightlog import BusUnavailable, connect
from flightlog_recorder.embedded import Server
from tests.scripted import TENANT, Model, says, stored, types, until
from tests.system.load import Load, acks_of_each, restart

# A killed broker is back within two seconds on an idle machine.
pytestmark = pytest.mark.timeout(90)


async def test_what_was_acked_is_stored_once_and_in_order_over_five_kills(
    nats_server: Server,
) -> None:
    async with connect(nats=nats_server.url, tenant=TENANT) as log:
        async with log.session() as a, log.session() as b, log.session() as c:
            loads = [Load(s) for s in (a, b, c)]
            running = [
                asyncio.create_task(load.run(width=width))
                for load, width in zip(loads, (1, 12, 40), strict=True)
            ]
            for _ in range(5):
                await acks_of_each(loads, 20)
                await restart(nats_server)
            for load in loads:
                load.stopped = True
            await asyncio.gather(*running)
        for load in loads:
            await load.check(log)


async def test_a_whole_turn_goes_on_over_a_broker_that_comes_back(nats_server: Server) -> None:
    async def slow(**_: Any) -> Any:
        await asyncio.to_thread(nats_server.kill)
        return says("done")

    async with connect(nats=nats_server.url, tenant=TENANT) as log, log.session() as s:
        await s.user_message("hi")
        request = {"messages": s.state.messages()}
        asking = asyncio.create_task(s.model_call(request, call=slow))
        await until(lambda: not nats_server.running)
        await asyncio.to_thread(nats_server.start)
        assert await asking == says("done")
        await s.tool_call("t", call_id="c", run=lambda: restart_sync(nats_server))
        assert (await types(log, s.id))[1:] == [
            "user_message",
            "model_request",
            "model_response",
            "tool_call",
            "tool_result",
        ]


def restart_sync(server: Server) -> str:
    server.kill()
    server.start()
    return "restarted"


async def test_an_append_waits_for_hours_if_told_so_and_its_place_is_kept(
    nats_server: Server,
) -> None:
    async with connect(nats=nats_server.url, tenant=TENANT) as log, log.session() as s:
        await asyncio.to_thread(nats_server.kill)
        patient = asyncio.create_task(s.append("note", "patient", deadline=3_600))
        appender = s._journal.appender
        assert appender is not None
        await until(lambda: not appender.writer.idle)
        with pytest.raises(BusUnavailable):
            await s.append("note", "hasty", deadline=0.3)
        await asyncio.to_thread(nats_server.start)
        assert (await patient).seq == 2
        assert [e.payload for e in await stored(log, s.id) if e.type == "note"] == ["patient"]


async def test_items_sent_while_the_broker_was_away_reach_the_session(nats_server: Server) -> None:
    async with (
        connect(nats=nats_server.url, tenant=TENANT) as log,
        connect(nats=nats_server.url, tenant=TENANT) as other,
        log.session() as s,
    ):
        waiting = asyncio.create_task(s.wait())
        await restart(nats_server)

        async def sent() -> bool:
            try:
                await other.say(s.id, "are you there?", message_id="m")
            except BusUnavailable:
                return False
            return True

        await until(sent, timeout=20)
        async with asyncio.timeout(20):
            assert await waiting
        assert s.state.messages() == [{"role": "user", "content": "are you there?"}]


async def test_a_session_is_resumed_after_its_broker_was_killed(nats_server: Server) -> None:
    async with connect(nats=nats_server.url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            await s.user_message("hi")
            await s.model_call({"messages": []}, call=Model(says("hello")))
        await restart(nats_server)
        async with log.session(key="k") as again:
            assert again.id == s.id
            assert again.state.counts["model_response"] == 1
