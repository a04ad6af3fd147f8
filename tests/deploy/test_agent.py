"""The sample agent: killed anywhere, the next one finishes the same session and repeats nothing."""

import os
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import Process
from collections import Counter

import pytest

import flightlog
from flightlog import Log, NoSuchSession
from flightlog_recorder.embedded import Servers
from tests.deploy.rendered import DEPLOY
from tests.projector.conftest import until

KEY = "nightly-orders/1"

pytestmark = pytest.mark.timeout(60)  # the agent is a Python of its own, started twice


async def start(servers: Servers, *, pace: float) -> Process:
    more = {"FLIGHTLOG_SESSION_KEY": KEY, "SAMPLE_PACE": str(pace)}
    environment = os.environ | servers.environment() | more
    return await create_subprocess_exec(sys.executable, DEPLOY / "agent.py", env=environment)


async def results(log: Log) -> int:
    try:
        session = await log.look_up(KEY)
        return (await log.state(session)).counts.get("tool_result", 0) if session else 0
    except NoSuchSession:  # its key is there, its first event is on the way
        return 0


async def test_the_agent_that_comes_after_a_killed_one_repeats_nothing(servers: Servers) -> None:
    async with flightlog.connect(nats=servers.nats_url, provision=True) as log:
        first = await start(servers, pace=1)
        await until(lambda: results(log))
        first.kill()
        await first.wait()
        second = await start(servers, pace=0)
        assert await second.wait() == 0
        session = await log.look_up(KEY)
        assert session is not None
        events = [event async for event in log.read(session)]
        payloads = [await log.payload(event) for event in events if event.type == "tool_result"]
    kinds = Counter(event.type for event in events)
    assert (events[-1].type, kinds["session_resumed"], kinds["user_message"]) == (
        "session_ended",
        1,
        1,
    )
    assert Counter(each["call_id"] for each in payloads) == {
        f"call_{region}": 1 for region in ("north", "east", "south", "west")
    }
