"""`flightlog ls --key`: one line for each time of a job, and in a word how it stands."""

import os
import signal

import pytest

from flightlog import Log
from flightlog.bus.nats_bus import NatsBus
from flightlog_recorder.embedded import Servers
from flightlog_recorder.service.metrics import Metrics
from flightlog_recorder.service.stalled import Watch
from tests.recorder.command import Command
from tests.recorder.command import flightlog as command
from tests.recorder.jobs import AGENT, KEY, RUN, SESSION_KEY, ready, session_of
from tests.recorder.recorded import project
from tests.scripted import TENANT, until

# Two interpreters start for each attempt, on a busy machine.
pytestmark = pytest.mark.timeout(60)

TWICE = ("--retries", "1")  # one that died in a call asks a person when it is started again


@pytest.fixture
def run(servers: Servers, log: Log) -> Command:
    assert log.tenant == TENANT
    return command(servers)


async def listed(run: Command, log: Log) -> list[str]:
    """The lines for the job, without the session's id and what is counted."""
    await project(log, await session_of(log))
    ran = await run("ls", "--key", KEY)
    assert ran.code == 0
    _, *lines = ran.out.splitlines()
    return [line[line.index(" ") : line.rindex(SESSION_KEY)].strip() for line in lines]


@pytest.mark.parametrize(
    ("role", "word"),
    [
        ("ends", "done"),
        ("leaves", "done"),
        ("gives-up", "failed"),
        ("raises", "failed"),
        ("dies", "failed"),
        ("asks", "waiting for a person"),
        ("waits-for-news", "suspended"),
    ],
)
async def test_each_end_of_a_job_has_its_word(run: Command, log: Log, role: str, word: str) -> None:
    await run(*RUN, *TWICE, *AGENT, role)
    [line] = await listed(run, log)
    assert line.startswith(f"{word}  ")


async def test_a_job_that_goes_on_is_running(run: Command, log: Log) -> None:
    async with run.running(*RUN, *AGENT, "sleeps") as running:
        await ready(running)
        [line] = await listed(run, log)
        assert line.startswith("running  ")
        await running.stop()


async def test_a_job_whose_pod_was_killed_is_stalled_until_another_takes_its_place(
    run: Command, log: Log
) -> None:
    async with run.running(*RUN, *AGENT, "sleeps-on") as running:
        pid = await ready(running)
        os.kill(running.pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        await running.stop(signal.SIGKILL)
    await project(log, await session_of(log))
    assert isinstance(log.bus, NatsBus)
    assert log.store is not None
    watch = Watch(log.bus, log.store, Metrics(), after=0.2)

    async def is_marked() -> bool:
        await watch.look(TENANT)
        return bool((await log.sessions(stalled=True)).rows)

    await until(is_marked)
    [line] = await listed(run, log)
    assert line.startswith("stalled  ")
    assert (await run(*RUN, *AGENT, "ends")).code == 0
    [line] = await listed(run, log)
    assert line.startswith("done  ")
