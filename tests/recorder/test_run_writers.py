"""`flightlog run` and other writers: a live one keeps its session, and the job is not retried."""

import contextlib
import os
import signal
from collections.abc import Generator

import pytest

from flightlog import Log
from flightlog.writing import keys
from flightlog_recorder.embedded import Servers
from flightlog_recorder.run.verdict import MOST_LOST
from tests.handmade import follow
from tests.recorder.command import Command
from tests.recorder.command import flightlog as command
from tests.recorder.jobs import AGENT, RUN, SESSION_KEY, is_gone, ready, session_of, status
from tests.recorder.recorded import write
from tests.scripted import TENANT, types, until

# Two interpreters start for each attempt, on a busy machine.
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def run(servers: Servers, log: Log) -> Command:
    assert log.tenant == TENANT
    return command(servers)


@contextlib.contextmanager
def ending(pid: int) -> Generator[None]:
    """End a process that nobody else ends, after a block."""
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)


async def test_another_live_writer_is_left_alone(run: Command, log: Log) -> None:
    async with log.session(key=SESSION_KEY) as session:
        await session.user_message("mine")
        ran = await run(*RUN, *AGENT, "ends")
        assert ran.code == 4
        assert ran.err.count("\n") == 1
        await session.user_message("still mine")


async def test_a_program_that_was_fenced_is_never_restarted(run: Command, log: Log) -> None:
    async with run.running(*RUN, *AGENT, "works") as running:
        await ready(running)
        async with log.session(key=SESSION_KEY) as session:
            ran = await running.ended()
            assert ran.code == 4
            assert "taken" in ran.err
            await session.user_message("mine now")
    alone = await run("run", "--key", "other", "--retries", "0", *AGENT, "exits", "4")
    assert (alone.code, "failed after 1 attempt: exit code 4" in alone.err) == (1, True)


@pytest.mark.parametrize("code", ["0", "1"])
async def test_a_writer_that_the_program_left_behind_keeps_the_session(
    run: Command, log: Log, code: str
) -> None:
    async with run.running(*RUN, *AGENT, "leaves-a-writer", code) as running:
        with ending(await ready(running)):
            ran = await running.ended()
            assert (ran.code, ran.err.count("\n")) == (4, 1), ran.err
            told = await types(log, await session_of(log))
            assert told == ["session_started", "user_message", "tool_call"]


async def test_a_program_that_outlives_its_run_keeps_the_session(run: Command, log: Log) -> None:
    async with run.running(*RUN, *AGENT, "sleeps-on") as running:
        with ending(await ready(running)):
            os.kill(running.pid, signal.SIGKILL)
            await until(lambda: is_gone(running.pid))
            assert (await run(*RUN, *AGENT, "ends")).code == 4
            assert (await log.state(await session_of(log))).writer == 1
        await running.ended()


async def test_a_session_whose_processes_die_without_a_word_is_failed_and_not_started_for_ever(
    run: Command, log: Log
) -> None:
    entry = await keys.claim(log.bus, TENANT, SESSION_KEY)
    events = [follow(None, type="session_started", payload=writer(1), session=entry.id)]
    for number in range(2, MOST_LOST + 2):
        said = writer(number)
        events.append(follow(events[-1], type="session_resumed", payload=said, session=entry.id))
    said = {"reason": "SIGTERM"}  # by the last one, so that nobody has to be listened for
    events.append(follow(events[-1], type="session_suspended", payload=said, session=entry.id))
    await write(log, entry.id, events)
    ran = await run(*RUN, *AGENT, "tells-signals")
    assert (ran.code, ran.out) == (1, "")
    reason = f"{MOST_LOST} processes of the session died without a word, after 0 attempts"
    assert await status(log) == ("failed", reason)


def writer(number: int) -> dict[str, object]:
    return {"writer": {"number": number, "id": f"{number:032x}"}, "key": SESSION_KEY}
