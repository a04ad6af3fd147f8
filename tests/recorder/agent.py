"""What `flightlog run` runs in tests: `python -m tests.recorder.agent ROLE`."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import flightlog
from flightlog import Session


def say(line: str) -> None:
    """Tell the test."""
    print(line, flush=True)


async def ends(session: Session) -> None:
    await session.end("completed", result=42)


async def gives_up(session: Session) -> None:
    await session.end("failed", error="no use")


async def waits_for_news(session: Session) -> None:
    await session.suspend("no news yet")


async def asks(session: Session) -> None:
    await session.tool_call("send", {}, call_id=f"c{os.getpid()}", run=die)


async def raises(_: Session) -> None:
    sys.stderr.write("a secret line\n")
    raise RuntimeError("the last line")


async def recovers(session: Session) -> None:
    if session.state.counts.get("attempt_failed", 0) < 2:
        raise RuntimeError("not yet")
    await session.end("completed")


async def dies(_: Session) -> None:
    die()


def die() -> None:
    """Die without a word."""
    os.kill(os.getpid(), signal.SIGKILL)


async def sleeps(_: Session) -> None:
    await work_on()


async def sleeps_on(_: Session) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    await work_on()


async def works(session: Session) -> None:
    await session.tool_call("work", {}, call_id="c", run=work_on, on_resume="rerun")


async def work_on() -> None:
    """Never end by itself."""
    say(f"ready {os.getpid()}")
    await asyncio.Event().wait()


async def leaves_an_orphan(_: Session) -> None:
    orphan = await asyncio.create_subprocess_exec("sleep", "600")
    say(f"ready {orphan.pid}")


async def leaves(_: Session) -> None:
    """Leave the session's block without a word."""


async def main(role: str) -> None:
    """Open the session that the environment names, and play a role in it."""
    async with flightlog.connect() as log, log.session(harness_version="agent/1") as session:
        await session.user_message("go", once="task")
        await globals()[role.replace("-", "_")](session)


def tell_signals() -> None:
    """Say which signal comes first."""
    asked = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
    signal.pthread_sigmask(signal.SIG_BLOCK, asked)
    say("ready")
    say(signal.Signals(signal.sigwait(asked)).name)


def leave_a_writer() -> None:
    """Leave the session to a process that no group ends."""
    command = [sys.executable, "-m", "tests.recorder.agent", "works"]
    left = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert left.stdout is not None
    sys.stdout.buffer.write(left.stdout.readline())
    sys.stdout.flush()


def show_environment() -> None:
    """Print what a run says to its program."""
    say(json.dumps({k: v for k, v in os.environ.items() if k.startswith("FLIGHTLOG_")}))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["environment"]:
            show_environment()
        case ["exits", code]:
            sys.exit(int(code))
        case ["tells-signals"]:
            tell_signals()
        case ["leaves-a-writer", code]:
            leave_a_writer()
            sys.exit(int(code))
        case [role, *code]:
            asyncio.run(main(role))
            sys.exit(int(code[0]) if code else 0)
        case _:
            sys.exit("which role does the agent play?")
