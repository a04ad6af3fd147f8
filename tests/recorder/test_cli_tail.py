"""`flightlog tail`: the last events, and every later one once and in order."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator

import pytest

from flightlog import Log, Session, connect
from flightlog.event import digest_of
from flightlog.wire import subject as names
from flightlog_recorder.embedded import Server, Servers
from flightlog_recorder.inspect.follow import Following, Rewound
from tests.handmade import chain, follow
from tests.recorder.command import Command, Running, flightlog
from tests.recorder.recorded import talk, write
from tests.scripted import TENANT, stored, types

pytestmark = pytest.mark.timeout(60)  # every command is a process of its own
EVENTS = 100  # appended one at a time while a tail is watching


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT) as log:
        yield log


async def test_the_last_events_are_told_a_line_each(servers: Servers, log: Log) -> None:
    session = await talk(log, key="k")
    ran = await flightlog(servers)("tail", "k", "-n", "3")
    told = [line.split() for line in ran.out.splitlines()]
    events = (await stored(log, session))[-3:]
    assert [(int(line[0]), line[2]) for line in told] == [(e.seq, e.type) for e in events]
    assert "it is 2" in ran.out


async def test_json_is_the_stored_bodies(servers: Servers, log: Log) -> None:
    session = await talk(log)
    ran = await flightlog(servers)("tail", session, "--json", "-n", "1000")
    assert ran.out.encode() == b"".join(e.body + b"\n" for e in await stored(log, session))


async def seqs(running: Running, count: int) -> list[int]:
    return [json.loads(await running.line())["seq"] for _ in range(count)]


async def test_following_misses_and_doubles_nothing_while_events_come(
    servers: Servers, log: Log
) -> None:
    async with log.session() as session:
        await session.user_message("begin")
        writing = asyncio.create_task(write_on(session, EVENTS))
        async with flightlog(servers).running("tail", session.id, "-f", "--json") as running:
            first, *_ = await seqs(running, 1)
            rest = await seqs(running, EVENTS + 2 - first)
            assert [first, *rest] == list(range(first, EVENTS + 3))
            await writing
            assert await running.stop(signal.SIGINT) == 130


async def write_on(session: Session, count: int) -> None:
    for n in range(count):
        await session.append("note", {"n": n})


async def test_following_goes_on_after_the_broker_was_gone(nats_server: Server) -> None:
    command = Command({"FLIGHTLOG_NATS_URL": nats_server.url, "FLIGHTLOG_TENANT": TENANT})
    async with connect(nats=nats_server.url, tenant=TENANT) as log, log.session() as session:
        await session.user_message("before")
        async with command.running("tail", session.id, "-f", "--json") as running:
            assert await seqs(running, 2) == [1, 2]
            nats_server.kill()
            nats_server.start()
            await session.user_message("after")
            await session.user_message("and again")
            assert await seqs(running, 2) == [3, 4]


async def test_an_interrupted_follow_ends_without_a_traceback(servers: Servers, log: Log) -> None:
    session = await talk(log)
    async with flightlog(servers).running("tail", session, "-f") as running:
        assert await running.line()
        assert await running.stop(signal.SIGINT) == 130
        assert (await running.ended()).err == ""


async def test_following_shows_progress_that_nobody_keeps(servers: Servers, log: Log) -> None:
    async with (
        log.session() as session,
        flightlog(servers).running("tail", session.id, "-f") as running,
    ):
        assert "session_started" in await running.line()
        line = asyncio.create_task(running.line())
        while not line.done():  # who comes late hears nothing of what was said before
            await session.progress("half\x1b[2J of it")
            await asyncio.wait({line}, timeout=0.05)
        assert (await line).split(maxsplit=1) == ["progress", "half\\u001b[2J of it"]
    assert await types(log, session.id) == ["session_started", "session_suspended"]


async def events_of(following: Following) -> list[int | str]:
    found: list[int | str] = []
    async for each in following.more():
        found += [f"back to {each.to}"] if isinstance(each, Rewound) else [e.seq for e in each]
    return found


async def test_a_fenced_writers_events_are_taken_back_and_the_winners_follow(log: Log) -> None:
    session = names.mint()
    start = {"writer": {"number": 1, "id": "a"}}
    first = follow(None, type="session_started", payload=start, session=session)
    lost = follow(first, payload="lost", session=session)
    last = await write(log, session, [first, lost])
    following = Following(log.bus, TENANT, session)
    assert await events_of(following) == [1, 2]
    won = follow(
        first,
        type="session_resumed",
        payload={"writer": {"number": 2, "id": "b"}},
        session=session,
    )
    assert digest_of(won.body) != lost.digest
    await write(log, session, [won, follow(won, session=session)], last=last)
    assert await events_of(following) == ["back to 1", 2, 3]
    assert await events_of(following) == []


async def test_what_was_read_once_is_not_read_again(log: Log) -> None:
    session = names.mint()
    events = chain(4, session=session)
    last = await write(log, session, events[:2])
    following = Following(log.bus, TENANT, session)
    assert await events_of(following) == [1, 2]
    await write(log, session, events[2:], last=last)
    assert await events_of(following) == [3, 4]
    assert await types(log, session) == ["note"] * 4
