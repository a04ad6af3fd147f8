"""`flightlog run`: real programs, and what the session says of them afterwards."""

import json
import sys
from pathlib import Path

import pytest

from flightlog import Log
from flightlog_recorder.embedded import Servers
from tests.recorder.command import Command, Ran
from tests.recorder.command import flightlog as command
from tests.recorder.jobs import (
    AGENT,
    KEY,
    RUN,
    SESSION_KEY,
    failures,
    is_gone,
    ready,
    session_of,
    status,
)
from tests.scripted import TENANT, payloads, types, until

# Two interpreters start for each attempt, on a busy machine.
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def run(servers: Servers, log: Log) -> Command:
    assert log.tenant == TENANT
    return command(servers)


async def test_a_program_finds_its_session_its_labels_and_its_servers_in_the_environment(
    run: Command, servers: Servers
) -> None:
    labels = ("--label", "job=nightly-1", "--label", "who=a,b=100%")
    found = (await run("--tenant", "other", *RUN, *labels, *AGENT, "environment")).json
    assert found["FLIGHTLOG_SESSION_KEY"] == SESSION_KEY
    assert found["FLIGHTLOG_LABELS"] == "job=nightly-1,who=a%2Cb%3D100%25"
    assert found["FLIGHTLOG_NATS_URL"] == servers.nats_url
    assert found["FLIGHTLOG_REDIS_URL"] == servers.redis_url
    assert found["FLIGHTLOG_TENANT"] == "other"


async def test_a_nats_context_of_the_command_line_is_the_programs_too(
    servers: Servers, log: Log, tmp_path: Path
) -> None:
    contexts = tmp_path / "nats" / "context"
    contexts.mkdir(parents=True)
    (contexts / "prod.json").write_text(json.dumps({"url": servers.nats_url}))
    elsewhere = {"FLIGHTLOG_NATS_URL": "nats://127.0.0.1:1", "FLIGHTLOG_TENANT": TENANT}
    run = Command({**elsewhere, "XDG_CONFIG_HOME": str(tmp_path)})
    ran = await run("--nats-context", "prod", *RUN, *AGENT, "ends")
    assert (ran.code, await status(log)) == (0, ("completed", None)), ran.err


async def test_labels_of_the_run_are_those_of_the_session(run: Command, log: Log) -> None:
    ran = await run(*RUN, "--label", "node=n 1", "--label", "who=a,b=100%", *AGENT, "ends")
    assert ran.code == 0, ran.err
    state = await log.state(await session_of(log))
    assert state.labels == {"node": "n 1", "who": "a,b=100%"}
    assert state.harness_version == "agent/1"


async def test_labels_of_the_pod_that_came_last_count(run: Command, log: Log) -> None:
    pods = {"waits-for-news": ("pod=a", "attempt=0"), "ends": ("pod=b", "attempt=1")}
    for role, (pod, attempt) in pods.items():
        ran = await run(*RUN, "--label", "job=n", "--label", pod, "--label", attempt, *AGENT, role)
        assert ran.code == 0, ran.err
    state = await log.state(await session_of(log))
    assert state.labels == {"job": "n", "pod": "b", "attempt": "1"}
    assert state.counts["session_resumed"] == 1


async def test_a_program_that_cannot_be_started_is_said_in_a_line_and_appends_nothing(
    run: Command, log: Log, tmp_path: Path
) -> None:
    broken = tmp_path / "agent"
    broken.write_text("#!/there/is/no/such/interpreter\n")
    broken.chmod(0o755)
    ran = await run(*RUN, "--", str(broken))
    assert (ran.code, ran.err.count("\n")) == (1, 1), ran.err
    assert str(broken) in ran.err
    assert await log.look_up(SESSION_KEY) is None


async def test_a_session_that_the_program_ended_is_left_as_it_is(run: Command, log: Log) -> None:
    assert (await run(*RUN, *AGENT, "ends")).code == 0
    session = await session_of(log)
    assert await types(log, session) == ["session_started", "user_message", "session_ended"]
    again = await run(*RUN, *AGENT, "ends")
    assert again.code == 0
    assert "has ended: completed" in again.err
    assert len(await types(log, session)) == 3


async def test_the_next_scheduled_time_is_another_session(run: Command, log: Log) -> None:
    assert (await run(*RUN, *AGENT, "ends")).code == 0
    assert (await run("run", "--key", KEY, "--schedule-time", "t2", *AGENT, "ends")).code == 0
    assert (await run("run", "--key", KEY, *AGENT, "ends")).code == 0
    found = {await log.look_up(key) for key in (SESSION_KEY, f"{KEY}/t2", KEY)}
    assert len(found) == 3
    assert None not in found


async def test_a_program_that_exits_with_0_has_completed_its_session(
    run: Command, log: Log
) -> None:
    assert (await run(*RUN, *AGENT, "leaves")).code == 0
    assert await status(log) == ("completed", None)
    assert (await run("run", "--key", "bare", *AGENT, "exits", "0")).code == 0
    assert await status(log, "bare") == ("completed", None)


async def test_a_session_that_was_suspended_on_purpose_stays_suspended(
    run: Command, log: Log
) -> None:
    ran = await run(*RUN, *AGENT, "waits-for-news")
    assert (ran.code, await status(log)) == (0, ("suspended", "no news yet"))


async def test_a_session_that_failed_by_its_own_word_is_no_success(run: Command, log: Log) -> None:
    ran = await run(*RUN, *AGENT, "gives-up")
    assert (ran.code, await status(log)) == (1, ("failed", "no use"))
    assert (await run(*RUN, *AGENT, "gives-up", "7")).code == 1


async def test_a_program_that_ended_its_session_is_never_restarted_whatever_its_exit_code(
    run: Command, log: Log
) -> None:
    assert (await run(*RUN, *AGENT, "ends", "7")).code == 7
    assert "attempt_failed" not in await types(log, await session_of(log))


async def test_a_crash_is_followed_by_restarts_and_then_by_a_failed_session_with_the_reason(
    run: Command, log: Log
) -> None:
    ran = await run(*RUN, "--retries", "1", *AGENT, "raises")
    assert ran.code == 1
    assert "attempt 1 of 2 ended with exit code 1; again in" in ran.err
    assert "RuntimeError: the last line" in ran.err
    assert await status(log) == ("failed", "exit code 1, after 2 attempts")
    [failed] = await failures(log)
    assert (failed["attempts"], failed["exit_code"], failed["signal"]) == (1, 1, None)
    [ended] = await payloads(log, await session_of(log), "session_ended")
    assert ended["result"]["stderr"][-1] == "RuntimeError: the last line"
    assert ended["result"]["attempts"] == 2


async def test_a_program_that_recovers_completes_its_session(run: Command, log: Log) -> None:
    assert (await run(*RUN, *AGENT, "recovers")).code == 0
    assert await status(log) == ("completed", None)
    assert len(await failures(log)) == 2


async def test_attempts_are_counted_over_all_pods(run: Command, log: Log) -> None:
    async with log.session(key=SESSION_KEY) as session:
        for attempt in (1, 2):
            await session.append("attempt_failed", {"attempts": attempt})
    ran = await run(*RUN, "--retries", "2", *AGENT, "raises")
    assert (ran.code, await status(log)) == (1, ("failed", "exit code 1, after 3 attempts"))
    again = await run(*RUN, "--retries", "2", *AGENT, "raises")
    assert again.code == 1
    assert "attempt" not in again.err


async def test_a_pod_that_died_before_it_could_fail_the_session_leaves_that_to_the_next(
    run: Command, log: Log
) -> None:
    async with log.session(key=SESSION_KEY) as session:
        await session.append("attempt_failed", {"attempts": 1})
    ran = await run(*RUN, "--retries", "0", *AGENT, "ends")
    assert ran.code == 1
    assert await status(log) == ("failed", "the last attempt failed, after 1 attempt")


async def test_a_killed_program_is_restarted_at_once_without_waiting_for_its_beats(
    run: Command, log: Log
) -> None:
    ran = await run(*RUN, "--retries", "0", *AGENT, "dies")
    assert (ran.code, await status(log)) == (1, ("failed", "signal SIGKILL, after 1 attempt"))


async def test_a_call_that_waits_for_a_person_is_left_to_wait(run: Command, log: Log) -> None:
    ran = await run(*RUN, *AGENT, "asks")
    assert ran.code == 0, ran.err
    assert await status(log) == ("suspended", "waits for a person")


async def test_what_is_kept_of_stderr_is_bounded_and_redacted(run: Command, log: Log) -> None:
    redact = ("--stderr-lines", "4", "--redact", "tests.recorder.test_run:redact")
    ran = await run(*RUN, *redact, "--retries", "0", *AGENT, "raises")
    assert ran.code == 1
    assert "secret" in ran.err
    [ended] = await payloads(log, await session_of(log), "session_ended")
    assert len(ended["result"]["stderr"]) == 4
    whole = ("--retries", "0", "--stderr-lines", "99")
    await run("run", "--key", "2", *redact, *whole, *AGENT, "raises")
    [ended] = await payloads(log, await session_of(log, "2"), "session_ended")
    assert "a ****** line" in ended["result"]["stderr"]


def redact(text: str) -> str:
    return text.replace("secret", "******")


async def test_what_the_program_leaves_behind_ends_with_it(run: Command) -> None:
    async with run.running(*RUN, *AGENT, "leaves-an-orphan") as running:
        orphan = await ready(running)
        await running.ended()
    await until(lambda: is_gone(orphan))


async def test_no_bus_is_exit_code_3_and_nothing_is_started() -> None:
    nowhere = Command({"FLIGHTLOG_NATS_URL": "nats://127.0.0.1:1"})
    ran = await nowhere(*RUN, "--", "echo", "started")
    assert (ran.code, ran.out) == (3, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--key", "k"),
        ("run", "--key", "k", "--", "no-such-program-anywhere"),
        ("run", "--key", "k", "--schedule-time", "", "--", "true"),
        ("run", "--key", "k", "--label", "x", "--", "true"),
        ("run", "--", "true"),
    ],
)
async def test_wrong_usage_is_exit_code_2(run: Command, arguments: tuple[str, ...]) -> None:
    ran: Ran = await run(*arguments)
    assert ran.code == 2
    assert ran.err


async def test_what_follows_the_program_is_its_own_even_without_dashes(run: Command) -> None:
    shown = (sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv))", "--key")
    assert (await run("run", "--key", "k", *shown)).json == ["-c", "--key"]
