"""Scheduled jobs as tests start them, and what their sessions say."""

import contextlib
import os
import sys
from pathlib import Path

from flightlog import Log
from tests.recorder.command import Running
from tests.scripted import payloads

KEY, TIME = "nightly", "2026-11-30T02:00Z"
SESSION_KEY = f"{KEY}/{TIME}"
RUN = ("run", "--key", KEY, "--schedule-time", TIME, "--backoff", "0.01")
AGENT = ("--", sys.executable, "-m", "tests.recorder.agent")


async def session_of(log: Log, key: str = SESSION_KEY) -> str:
    """The session of a key that there is."""
    found = await log.look_up(key)
    assert found is not None
    return found


async def status(log: Log, key: str = SESSION_KEY) -> tuple[str, str | None]:
    """How the session of a key stands, and why."""
    state = await log.state(await session_of(log, key))
    return state.status, state.reason


async def failures(log: Log) -> list[dict[str, object]]:
    """What is recorded of attempts that failed."""
    return await payloads(log, await session_of(log), "attempt_failed")


async def ready(running: Running) -> int:
    """Wait for a program's word; its pid."""
    word, pid = (await running.line()).split()
    assert word == "ready"
    return int(pid)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        with contextlib.suppress(FileNotFoundError):
            return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    return True
