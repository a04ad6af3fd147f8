"""A real harness process, killed, doubled or cut off from its broker: the result stays the same."""

import asyncio
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

import flightlog
from flightlog.log import Log
from flightlog_recorder.demo import evidence
from flightlog_recorder.demo.evidence import Outcome
from flightlog_recorder.demo.stage import Stage
from flightlog_recorder.demo.workspace import OUTBOX, Workspace
from flightlog_recorder.embedded import Server, Servers
from flightlog_recorder.embedded.child import Child

# Each run is a process of its own that takes 2 s on an idle machine; this suite runs on a busy one.
pytestmark = pytest.mark.timeout(90)

EVENTS = 185  # of an uninterrupted run
KILL_AFTER = (
    1,
    2,
    3,
    30,
    77,
    150,
)  # acked events; the mail, which a person would have to rule, is later


@pytest.fixture
def stage(tmp_path: Path, servers: Servers) -> Generator[Stage]:
    found = Stage(tmp_path, servers.environment())
    yield found
    found.close()


def prepared(stage: Stage, name: str) -> Workspace:
    workspace = stage.workspace(name)
    workspace.deliver()
    return workspace


async def until(condition: Callable[[], bool], *, harness: Child) -> None:
    while not condition():
        assert harness.alive, "the harness ended before its time"
        await asyncio.sleep(0.005)


async def finish(log: Log, stage: Stage, name: str, workspace: Workspace) -> Outcome:
    """Run the harness to its end and say how the session ended."""
    await stage.ended(stage.harness(name, workspace), workspace)
    session = await log.look_up(name)
    assert session is not None, stage.last_words(workspace.root.name)
    return await evidence.outcome(log, session, workspace)


async def assert_whole(log: Log, key: str, workspace: Workspace) -> None:
    """Every ack is in one unbroken chain, with no stray beside it."""
    session = await log.look_up(key)
    assert session is not None
    stored = {event.seq: event.digest async for event in log.read(session)}
    assert sorted(stored) == list(range(1, len(stored) + 1))
    assert workspace.acks().items() <= stored.items()
    assert (await log.fold(session)).strays == ()


async def test_wherever_it_is_killed_the_next_process_finishes_with_the_same_result(
    servers: Servers, stage: Stage
) -> None:
    async with flightlog.connect(nats=servers.nats_url, redis=servers.redis_url) as log:
        expected = await finish(log, stage, "whole", prepared(stage, "whole"))
        assert expected.status == "completed"

        async def killed_after(acked: int) -> None:
            name = f"killed-{acked}"
            workspace = prepared(stage, name)
            harness = stage.harness(name, workspace)
            await until(lambda: len(workspace.acks()) >= acked, harness=harness)
            harness.kill()
            assert len(workspace.acks()) < EVENTS
            assert await finish(log, stage, name, workspace) == expected
            await assert_whole(log, name, workspace)
            assert len((workspace.files / OUTBOX).read_text().splitlines()) == 1

        for acked in KILL_AFTER:
            await killed_after(acked)


async def test_a_second_process_takes_over_and_the_first_one_stops_working(
    servers: Servers, stage: Stage
) -> None:
    async with flightlog.connect(nats=servers.nats_url, redis=servers.redis_url) as log:
        workspace = prepared(stage, "doubled")
        first = stage.harness("doubled", workspace)
        await until(lambda: len(workspace.acks()) >= 50, harness=first)
        found = await finish(log, stage, "doubled", workspace)
        assert first.wait(10)
        assert found.status == "completed"
        await assert_whole(log, "doubled", workspace)


async def test_a_broker_that_is_killed_and_comes_back_costs_time_and_no_event(
    servers: Servers, stage: Stage, nats_server: Server
) -> None:
    workspace = prepared(stage, "cut-off")
    harness = stage.harness("cut-off", workspace)
    await until(lambda: len(workspace.acks()) >= 50, harness=harness)
    await asyncio.to_thread(nats_server.kill)
    await asyncio.to_thread(nats_server.start)
    await stage.ended(harness, workspace)
    async with flightlog.connect(nats=servers.nats_url, redis=servers.redis_url) as log:
        session = await log.look_up("cut-off")
        assert session is not None
        assert (await log.state(session)).status == "completed", stage.last_words("cut-off")
        assert len(workspace.runs()) == len({run.call_id for run in workspace.runs()})
        await assert_whole(log, "cut-off", workspace)
