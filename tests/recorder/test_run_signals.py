"""Signals to `flightlog run`: they go on to the program, and a stop leaves a session to resume."""

import asyncio
import os
import signal
from signal import Signals

import pytest

from flightlog import Log
from flightlog.bus.protocol import Message
from flightlog.running import alive
from flightlog.wire import subject as names
from flightlog_recorder.embedded import Servers
from tests.recorder.command import Command
from tests.recorder.command import flightlog as command
from tests.recorder.jobs import AGENT, RUN, SESSION_KEY, is_gone, ready, session_of, status
from tests.recorder.recorded import left_running
from tests.scripted import TENANT, types, until

# Two interpreters start for each attempt, on a busy machine.
pytestmark = pytest.mark.timeout(60)

STOPS = [(Signals.SIGTERM, 143), (Signals.SIGINT, 130), (Signals.SIGHUP, 129)]
ORDERS = [(Signals.SIGUSR1, 0), (Signals.SIGUSR2, 0)]


@pytest.fixture
def run(servers: Servers, log: Log) -> Command:
    assert log.tenant == TENANT
    return command(servers)


@pytest.mark.parametrize(("number", "code"), STOPS + ORDERS)
async def test_a_signal_goes_on_to_the_program_as_what_it_is(
    run: Command, number: Signals, code: int
) -> None:
    async with run.running(*RUN, *AGENT, "tells-signals") as running:
        assert await running.line() == "ready"
        os.kill(running.pid, number)
        assert await running.line() == number.name
        assert (await running.ended()).code == code


async def test_sigterm_suspends_the_session_and_lets_the_job_retry_its_pod(
    run: Command, log: Log
) -> None:
    async with run.running(*RUN, *AGENT, "sleeps") as running:
        await ready(running)
        assert await running.stop() == 143
    assert await status(log) == ("suspended", "SIGTERM")
    assert (await run(*RUN, *AGENT, "ends")).code == 0
    assert await status(log) == ("completed", None)


@pytest.mark.parametrize(("number", "code"), STOPS[1:])
async def test_other_stops_suspend_too(run: Command, log: Log, number: Signals, code: int) -> None:
    async with run.running(*RUN, *AGENT, "sleeps") as running:
        await ready(running)
        assert await running.stop(number) == code
    assert (await status(log))[0] == "suspended"


async def test_a_program_that_does_not_end_is_killed_after_its_grace_and_its_session_suspended(
    run: Command, log: Log
) -> None:
    async with run.running(*RUN, "--grace", "0.2", *AGENT, "sleeps-on") as running:
        pid = await ready(running)
        assert await running.stop() == 143
        assert is_gone(pid)
    assert await status(log) == ("suspended", "SIGTERM")
    assert "attempt_failed" not in await types(log, await session_of(log))


async def test_sigterm_while_the_broker_is_away_ends_within_a_pods_grace_and_is_no_failure(
    run: Command, log: Log, servers: Servers
) -> None:
    async with run.running(*RUN, "--grace", "0.2", *AGENT, "sleeps") as running:
        await ready(running)
        assert servers.nats is not None
        servers.nats.kill()
        assert await running.stop() == 143  # in half the time that recording may take
    servers.nats.start()
    assert (await run(*RUN, *AGENT, "ends")).code == 0
    assert await status(log) == ("completed", None)


async def test_sigterm_while_it_listens_for_the_last_pod_starts_and_records_nothing(
    run: Command, log: Log
) -> None:
    session, asked = await left_running(log, SESSION_KEY), asyncio.Event()

    async def listen(message: Message) -> None:
        beat = alive.read(message.body)
        if beat is not None and beat.asks == session:
            asked.set()

    listening = await log.bus.listen(names.alive_subject(TENANT), listen)
    async with run.running(*RUN, *AGENT, "tells-signals") as running:
        await asked.wait()
        async with asyncio.timeout(alive.SILENCE / 2):
            assert await running.stop() == 143
        assert await running.line() == ""
    assert await types(log, session) == ["session_started"]
    await listening.close()


async def test_sigterm_between_two_attempts_ends_the_pause_and_keeps_the_session(
    run: Command, log: Log
) -> None:
    async def is_pausing() -> bool:
        session = await log.look_up(SESSION_KEY)
        told = await types(log, session) if session else []
        return told[-2:] == ["attempt_failed", "session_suspended"]

    hours = ("--backoff", "86400")  # a pause is a minute at most, more than this test has
    async with run.running(*RUN, *hours, *AGENT, "raises") as running:
        await until(is_pausing, timeout=30)
        assert await running.stop() == 143
    state = await log.state(await session_of(log))
    assert (state.status, state.counts["attempt_failed"]) == ("suspended", 1)
    assert (await run(*RUN, *AGENT, "ends")).code == 0


async def test_a_run_that_is_killed_stops_its_program_and_a_retried_pod_resumes_the_session(
    run: Command, log: Log
) -> None:
    async with run.running(*RUN, *AGENT, "sleeps") as running:
        pid = await ready(running)
        assert await running.stop(signal.SIGKILL) == -signal.SIGKILL
        await until(lambda: is_gone(pid))
    session = await session_of(log)
    assert await status(log) == ("suspended", "SIGTERM")
    assert (await run(*RUN, *AGENT, "ends")).code == 0
    assert await session_of(log) == session
    assert await status(log) == ("completed", None)


async def test_a_pod_that_was_killed_whole_is_resumed_by_the_next_once_its_beats_are_missed(
    run: Command, log: Log
) -> None:
    async with run.running(*RUN, *AGENT, "sleeps-on") as running:
        pid = await ready(running)
        os.kill(running.pid, signal.SIGSTOP)  # so that it sees nothing of its program's end
        os.kill(pid, signal.SIGKILL)
        await running.stop(signal.SIGKILL)
    session = await session_of(log)
    assert (await log.state(session)).status == "running"
    assert (await run(*RUN, *AGENT, "ends")).code == 0
    assert await session_of(log) == session
    assert await status(log) == ("completed", None)
