"""G5 as a whole: every live event is delivered, whatever is killed; a replay never is."""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

import pytest
import redis

from flightlog import Log, connect
from flightlog.subscribing import letter as letters
from flightlog.subscribing import standing
from flightlog_recorder.cli import target
from flightlog_recorder.embedded import Server, Servers
from flightlog_recorder.embedded.child import Child
from tests.companions import projecting, seen_by
from tests.recorder.command import flightlog
from tests.recorder.inspected import inspected
from tests.scripted import TENANT, Model, says, stored, until

HERE = Path(__file__).parent / "harnesses" / "listener.py"
TRANSCRIPT = Path(__file__).parents[1] / "recorder" / "data" / "parallel.jsonl"


async def listed(log: Log) -> bool:
    return bool((await log.sessions()).rows)


async def caught_up(log: Log, name: str) -> bool:
    """Whether nothing waits for the subscriber any more."""
    rows = await standing.standings(target.bus_of(log), TENANT)
    return [row.lag for row in rows if row.name == name] == [0]


@pytest.mark.timeout(60)  # several commands, each a process that starts
async def test_nothing_that_replays_a_session_reaches_a_subscriber(
    servers: Servers,
) -> None:
    async with connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT) as log:
        async with log.session(key="k") as session:
            await session.user_message("hello")
            await session.model_call({"messages": []}, call=Model(says("hi")))
        async with seen_by(log, "n") as seen:
            await stored(log, session.id)
            await log.state(session.id)
            await log.state(session.id, at=2)
            async with projecting(servers):
                await until(lambda: listed(log))
                with redis.Redis.from_url(servers.redis_url) as client:
                    client.flushall()
                await until(lambda: listed(log))
            async with inspected(log) as client:
                for page in ("events", "state?seq=2", "timeline"):
                    await client.get(f"/api/sessions/{session.id}/{page}")
                assert (await client.get(f"/api/sessions/{session.id}")).status == 200
            fork = await log.fork(session.id, at=3)
            run = flightlog(servers)
            for command in (
                ("import", "claude-code", str(TRANSCRIPT)),
                ("export", session.id),
                ("replay", session.id, "--until", "2"),
                ("show", session.id),
                ("tail", session.id),
                ("verify", "--all"),
            ):
                assert (await run(*command)).code == 0, command
            async with log.session(key="live") as live:
                pass
            async with log.session(key="k") as resumed:
                assert resumed.id == session.id
            await until(lambda: caught_up(log, "n"))
    assert fork != session.id
    assert Counter(seen) == Counter(
        [
            (live.id, 1, "session_started"),
            (live.id, 2, "session_suspended"),
            (session.id, 6, "session_resumed"),
            (session.id, 7, "session_suspended"),
        ]
    )


@pytest.mark.timeout(90)  # processes that start and broker restarts, on a busy machine
async def test_each_live_event_is_delivered_through_kills_of_subscriber_broker_and_redis(
    nats_server: Server, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flightlog.bus.notices.ACK_WAIT", 2.0)  # what is killed leaves its events
    environment = {"FLIGHTLOG_NATS_URL": nats_server.url, "FLIGHTLOG_TENANT": TENANT}
    heard = tmp_path / "heard"
    command = [sys.executable, str(HERE), str(heard)]

    def start() -> Child:
        return Child(command, log=tmp_path / "printed", environment=environment)

    async with connect(nats=nats_server.url, redis=redis_url, tenant=TENANT) as log:
        async with log.subscribe("n"):
            pass  # its name begins here
        child, appended = start(), 0
        try:
            async with log.session(key="k") as session:
                for fault in ("subscriber", "broker", "redis", "subscriber"):
                    for _ in range(10):
                        await session.append("note", appended, deadline=60)
                        appended += 1
                    await until(lambda: lines(heard), timeout=30)
                    match fault:
                        case "subscriber":
                            child.kill()
                            child = start()
                        case "broker":
                            await asyncio.to_thread(nats_server.kill)
                            await asyncio.to_thread(nats_server.start)
                        case _:
                            with redis.Redis.from_url(redis_url) as client:
                                client.flushall()
            wanted = {event.seq for event in await stored(log, session.id)}
            await until(lambda: {seq for _, seq in lines(heard)} == wanted, timeout=60)
            assert [each async for each in letters.letters(log.bus, TENANT)] == []
        finally:
            child.kill()
    assert {session for session, _ in lines(heard)} == {session.id}


def lines(path: Path) -> list[tuple[str, int]]:
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [(session, seq) for session, seq in found]


async def test_a_subscriber_that_stands_still_slows_neither_writers_nor_others(
    servers: Servers,
) -> None:
    async with (
        connect(nats=servers.nats_url, tenant=TENANT) as log,
        log.subscribe("stuck", ahead=4) as stuck,
        seen_by(log, "quick") as quick,
    ):
        held = aiter(stuck)
        async with log.session() as session:
            await session.append("note", 0)
            kept = await anext(held)  # 1,500 are more than it may have in hand
            await asyncio.gather(*(session.append("note", n) for n in range(1_500)))
        await until(lambda: len(quick) >= session.state.seq)
        rows = await standing.standings(target.bus_of(log), TENANT)
        assert [row.lag > 1_500 for row in rows if row.name == "stuck"] == [True]
        await kept.ack()
