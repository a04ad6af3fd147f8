"""One writer: whoever loses the session is told, stops working, and leaves nothing that counts."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from flightlog import Fenced, Log, Session, SessionPurged, connect
from flightlog.bus.answer import Conflict
from flightlog.bus.nats_bus import connect_bare, create_streams
from flightlog.bus.protocol import Outgoing
from flightlog.wire import subject
from flightlog_recorder.embedded import Servers
from tests.cluster import Cluster
from tests.handmade import follow, tombstone
from tests.scripted import TENANT, chain_is_whole, payloads, stored, types, until
from tests.system.processes import Workshop


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, tenant=TENANT) as log:
        yield log


@pytest.fixture
async def other(servers: Servers) -> AsyncIterator[Log]:
    """A second process, as far as the broker can tell."""
    async with connect(nats=servers.nats_url, tenant=TENANT) as log:
        yield log


async def endless_call(session: Session) -> "asyncio.Task[Any]":
    """A tool call that runs until it is stopped."""
    started = asyncio.Event()

    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(session.tool_call("endless", call_id="c", run=endless))
    await started.wait()
    return task


@pytest.mark.parametrize("from_where", ["another process", "the same connection"])
async def test_a_takeover_stops_the_tools_of_the_older_writer_at_once(
    log: Log, other: Log, from_where: str
) -> None:
    async with log.session(key="k") as old:
        running = await endless_call(old)
        taker = other if from_where == "another process" else log
        async with taker.session(key="k") as new:
            async with asyncio.timeout(2):
                with pytest.raises(Fenced, match=new.id):
                    await running
            await new.user_message("mine now")
        with pytest.raises(Fenced):
            await old.user_message("mine")
        with pytest.raises(Fenced):
            await old.wait()
    recorded = await types(log, old.id)
    assert recorded == [
        "session_started",
        "tool_call",
        "session_resumed",
        "decision_requested",
        "user_message",
        "session_suspended",
    ]


async def test_a_purge_stops_the_tools_of_the_writer_at_once(log: Log, other: Log) -> None:
    async with log.session() as s:
        running = await endless_call(s)
        assert s._journal.appender is not None
        await other.bus.append(
            subject.log_subject(TENANT, s.id, "live"),
            [Outgoing(tombstone(session=s.id), {})],
            expected=s._journal.appender.writer.expected,
            timeout=5,
        )
        async with asyncio.timeout(2):
            with pytest.raises(SessionPurged):
                await running


async def test_an_append_that_the_broker_refused_is_no_false_alarm(log: Log, other: Log) -> None:
    async with log.session() as s:
        running = await endless_call(s)
        last = (await stored(log, s.id))[-1]
        forged = {"writer": {"number": 7, "id": "x" * 32}}
        refused = follow(last, type="session_resumed", payload=forged, session=s.id)
        live = subject.log_subject(TENANT, s.id, "live")
        for expected in (0, 9_999):
            answer = await other.bus.append(
                live, [Outgoing(refused.body, {})], expected=expected, timeout=5
            )
            assert isinstance(answer, Conflict)
        for n in range(20):
            await s.append("note", n)
        assert not running.done()
        assert s._journal.stopped is None
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_fenced_means_that_not_even_the_farewell_is_recorded(log: Log, other: Log) -> None:
    old = None
    with pytest.raises(Fenced):
        async with log.session(key="k") as old:
            async with other.session(key="k") as new:
                await new.end()
            await old.user_message("hello?")
    assert old is not None
    assert await types(log, old.id) == ["session_started", "session_resumed", "session_ended"]


async def test_what_was_queued_when_the_session_was_lost_is_not_stored(
    log: Log, other: Log
) -> None:
    async with log.session(key="k") as old:
        async with other.session(key="k"):
            late = [old.append("note", n) for n in range(40)]
            done = await asyncio.gather(*late, return_exceptions=True)
        assert {type(each) for each in done} == {Fenced}
    assert "note" not in await types(log, old.id)


@pytest.mark.timeout(60)  # two processes on a busy machine
async def test_a_frozen_process_that_thaws_after_a_takeover_is_fenced(
    workshop: Workshop, log: Log
) -> None:
    zombie = workshop.start("zombie.py", "k", str(workshop.folder))
    said = workshop.folder / "said"
    await until(said.exists, timeout=20)
    zombie.send(signal.SIGSTOP)
    async with log.session(key="k") as s:
        await s.user_message("the new writer")
        (workshop.folder / "note").touch()
        zombie.send(signal.SIGCONT)
        await workshop.ended(zombie)
        await s.user_message("still the writer")
        await s.end()
    words = [json.loads(line) for line in said.read_text().splitlines()]
    assert {"tool": "cancelled"} in words
    assert {"note": "Fenced"} in words or {"call": "Fenced"} in words
    assert {"note": "stored"} not in words
    events = await stored(log, s.id)
    assert chain_is_whole(events)
    assert "note" not in [event.type for event in events]
    assert (await log.fold(s.id)).strays == ()


@pytest.mark.timeout(60)  # many openings on a busy machine
async def test_resumers_never_take_turns(log: Log, other: Log) -> None:
    async with log.session(key="k"):
        pass

    async def resume(which: Log, n: int) -> str:
        try:
            async with which.session(key="k") as s:
                await s.append("note", n)
                return "worked"
        except Fenced:
            return "fenced"

    for _ in range(5):
        done = await asyncio.gather(*(resume((log, other)[n % 2], n) for n in range(6)))
        assert done.count("worked") >= 1
    session = await log.look_up("k")
    assert session is not None
    events = await stored(log, session)
    assert chain_is_whole(events)
    numbers = [
        event.payload["writer"]["number"]
        for event in events
        if event.type in ("session_started", "session_resumed")
    ]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.timeout(90)  # a cluster takes seconds to start
async def test_a_takeover_on_a_cluster_stops_the_older_writer_too(cluster: Cluster) -> None:
    async with await connect_bare(cluster.url) as bus:
        await create_streams(bus, replicas=3)
    first, second, third = cluster.urls
    async with (
        connect(nats=f"{first},{second}", tenant=TENANT) as log,
        connect(nats=f"{third},{second}", tenant=TENANT) as other,
        log.session(key="k") as old,
    ):
        running = await endless_call(old)
        began = time.monotonic()
        async with other.session(key="k") as new:
            with pytest.raises(Fenced):
                await running
            assert time.monotonic() - began < 6
            await other.say(new.id, "hello")
            await until(lambda: new.state.counts.get("user_message") == 1)
        (said,) = await payloads(log, old.id, "user_message")
        assert said["content"] == "hello"
