"""Told to stop: a process suspends what it has open, leaves the calls in flight, and is gone."""

import asyncio
import signal
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from signal import Signals

import pytest

import flightlog
from flightlog import Log
from flightlog.lineage import Parent
from flightlog.running.child import key_of
from flightlog.wire.carry import unpack
from flightlog_recorder.embedded import Server, Servers
from tests.scripted import TENANT, stored, types, until
from tests.system.loops import Loop

# A process of its own takes a second to start on a machine that is shared.
pytestmark = pytest.mark.timeout(60)

SOON = 5.0  # seconds to be gone in; Kubernetes gives thirty
TOLD = 15.0  # the same when the bus does not answer: each of what is tried has its deadline


@pytest.fixture
def loop(servers: Servers, tmp_path: Path) -> Loop:
    return Loop("evicted", servers, tmp_path)


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with flightlog.connect(nats=servers.nats_url, tenant=TENANT) as found:
        yield found


async def ready(process: Process, times: int = 1) -> None:
    """Wait until it is where the signal is to find it."""
    assert process.stdout is not None
    async with asyncio.timeout(40):
        for _ in range(times):
            line = await process.stdout.readline()
            assert line == b"ready\n", await said(process)


async def said(process: Process) -> str:
    _, errors = await process.communicate()
    return errors.decode()


async def told(process: Process, number: Signals, *, within: float = SOON) -> tuple[int, str]:
    """Send the signal; the exit status, and what the process had to say."""
    process.send_signal(number)
    began = time.monotonic()
    async with asyncio.timeout(40):
        words = await said(process)
    assert time.monotonic() - began < within, words
    assert process.returncode is not None
    return process.returncode, words


async def found(log: Log, key: str) -> str:
    session = await log.look_up(key)
    assert session is not None
    return session


IN_FLIGHT = {
    "in_a_tool": ["tool_call"],
    "in_a_thread": ["tool_call"],
    "in_two_steps": ["tool_call"],
    "in_a_model_call": ["model_request"],
    "in_a_chat": [],
    "without_asyncio": ["tool_call"],
    "waiting_without_asyncio": [],
}


@pytest.mark.parametrize("place", IN_FLIGHT)
async def test_sigterm_suspends_the_session_and_leaves_its_calls_in_flight(
    loop: Loop, log: Log, place: str
) -> None:
    process = await loop.start("job", place)
    await ready(process)
    assert await told(process, signal.SIGTERM) == (0, "")
    events = await stored(log, await found(log, "job"))
    assert [event.type for event in events] == [
        "session_started",
        *IN_FLIGHT[place],
        "session_suspended",
    ]
    assert events[-1].payload == {"reason": "SIGTERM"}


@pytest.mark.parametrize("place", ["in_a_tool", "in_a_thread", "without_asyncio"])
async def test_ctrl_c_does_the_same_and_ends_as_python_does(
    loop: Loop, log: Log, place: str
) -> None:
    process = await loop.start("job", place)
    await ready(process)
    status, words = await told(process, signal.SIGINT)
    assert status == -signal.SIGINT
    assert words.splitlines()[-1] == "KeyboardInterrupt"
    events = await stored(log, await found(log, "job"))
    assert [event.type for event in events[-2:]] == ["tool_call", "session_suspended"]
    assert events[-1].payload == {"reason": "SIGINT"}


async def test_parallel_calls_in_a_task_group_end_without_a_word(loop: Loop, log: Log) -> None:
    process = await loop.start("job", "in_a_group")
    await ready(process, 2)
    assert await told(process, signal.SIGTERM) == (0, "")
    assert (await types(log, await found(log, "job")))[-3:] == [
        "tool_call",
        "tool_call",
        "session_suspended",
    ]


async def test_whoever_comes_next_goes_on_where_it_was_stopped(loop: Loop, log: Log) -> None:
    process = await loop.start("job", "in_a_tool")
    await ready(process)
    await told(process, signal.SIGTERM)
    again = await loop.start("job", "in_a_tool")
    await ready(again)
    assert await told(again, signal.SIGTERM) == (0, "")
    starts = [
        e.payload for e in await stored(log, await found(log, "job")) if e.type == "tool_call"
    ]
    assert [start.get("attempt", 1) for start in starts] == [1, 2]


async def test_a_parent_and_its_child_are_both_suspended(loop: Loop, log: Log) -> None:
    process = await loop.start("job", "in_a_child")
    await ready(process)
    assert await told(process, signal.SIGTERM) == (0, "")
    parent = await found(log, "job")
    child = await found(log, key_of(Parent(parent, "1")))
    for session in (parent, child):
        events = await stored(log, session)
        assert [event.type for event in events[-2:]] == ["tool_call", "session_suspended"]
        assert events[-1].payload == {"reason": "SIGTERM"}


async def test_a_server_suspends_all_of_its_sessions(loop: Loop, log: Log) -> None:
    process = await loop.start("job", "in_a_server")
    await ready(process, 3)
    assert await told(process, signal.SIGTERM) == (0, "")
    for number in range(3):
        events = await stored(log, await found(log, f"job-{number}"))
        assert [event.type for event in events[-2:]] == ["tool_call", "session_suspended"]


async def test_a_harness_that_catches_everything_opens_nothing_more(loop: Loop, log: Log) -> None:
    process = await loop.start("job", "deaf")
    await ready(process)
    assert await told(process, signal.SIGTERM) == (0, "")
    assert await log.look_up("job-1") is None


async def test_a_second_signal_ends_the_process_at_once(loop: Loop, log: Log) -> None:
    process = await loop.start("job", "stubborn")
    await ready(process)
    process.send_signal(signal.SIGTERM)
    await ready(process)  # it has refused
    session = await found(log, "job")
    await until(lambda: has_stopped(log, session))
    status, _ = await told(process, signal.SIGTERM, within=2.0)
    assert status == 128 + signal.SIGTERM


async def has_stopped(log: Log, session: str) -> bool:
    return (await log.state(session)).reason == "SIGTERM"


async def test_a_handler_of_the_harness_stays_in_charge(loop: Loop, log: Log) -> None:
    process = await loop.start("job", "own")
    await ready(process)
    assert await told(process, signal.SIGTERM) == (7, "")
    assert (await log.state(await found(log, "job"))).status == "cancelled"


async def test_a_fork_of_a_harness_dies_of_sigterm_and_its_parent_works_on(
    loop: Loop, log: Log
) -> None:
    process = await loop.start("job", "forks")
    await ready(process)
    assert (await said(process), process.returncode) == ("", 0)
    assert unpack((await log.state(await found(log, "job"))).result) == -signal.SIGTERM


@pytest.mark.parametrize("place", ["in_a_tool", "without_asyncio"])
async def test_without_the_bus_it_gives_up_in_time_and_loses_nothing(
    loop: Loop, nats_server: Server, servers: Servers, place: str
) -> None:
    process = await loop.start("job", place)
    await ready(process)
    await asyncio.to_thread(nats_server.kill)
    status, words = await told(process, signal.SIGTERM, within=TOLD)
    assert status == 0
    assert "could not record its SIGTERM" in words
    await asyncio.to_thread(nats_server.start)
    async with (
        flightlog.connect(nats=servers.nats_url, tenant=TENANT) as log,
        log.session(key="job") as session,
    ):
        (call,) = session.state.calls
        assert call.phase == "rerun"
