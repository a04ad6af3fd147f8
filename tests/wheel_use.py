"""Records and reads a session with nothing but the bare wheel; run by wheel_check.py."""

import asyncio
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import flightlog

EXTRAS = ("prometheus_client", "pydantic", "pydantic_settings", "rich", "starlette", "typer")
SERVICES = ("flightlog_projector", "flightlog_recorder")


async def record_and_read() -> None:
    """Two openings of one key; the second continues the first."""
    nats, redis = os.environ["FLIGHTLOG_NATS_URL"], os.environ["FLIGHTLOG_REDIS_URL"]
    async with flightlog.connect(nats=nats, redis=redis, tenant="wheel", provision=True) as log:
        ids = [await greet(log) for _ in range(2)]
        events = [event async for event in log.read(ids[0])]
    assert ids[0] == ids[1]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.type for event in events].count("user_message") == 1
    assert [event.type for event in events].count("session_resumed") == 1


async def greet(log: flightlog.Log) -> str:
    """Open the session as any process of the job would; its id."""
    async with log.session(key="wheel-check") as session:
        await session.user_message("hello", once="hello")
        return session.id


def nothing_else_was_needed() -> None:
    """No extra is installed, and the SDK loaded neither service."""
    installed = [name for name in EXTRAS if importlib.util.find_spec(name)]
    assert not installed, f"the bare wheel pulled in {installed}"
    loaded = [name for name in sys.modules if name.startswith(SERVICES)]
    assert not loaded, f"the SDK loaded {loaded}"
    assert Path(flightlog.__file__).is_relative_to(sys.prefix)


def the_command_names_its_extra() -> None:
    """Without the cli extra, `flightlog` says how to get it."""
    command = [str(Path(sys.prefix) / "bin" / "flightlog"), "ls"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr == "flightlog: the command line needs: pip install 'flightlog[cli]'\n", done


if __name__ == "__main__":
    asyncio.run(record_and_read())
    nothing_else_was_needed()
    the_command_names_its_extra()
