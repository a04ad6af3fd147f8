"""A fresh process that goes through one session and says its peak memory in KiB."""

import asyncio
import os
import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path

from flightlog import connect
from flightlog_recorder.cli import app

VERBS = ("resume", "fold", "replay", "verify", "export")


async def read(verb: str, session: str) -> None:
    """Resume, fold or replay the session; from its first event, as it has no snapshot."""
    async with connect() as log:
        match verb:
            case "resume":
                async with log.session(id=session):
                    pass
            case "fold":
                await log.state(session)
            case _:
                async for _ in log.read(session):
                    pass


def command(verb: str, session: str) -> None:
    """Run the command of that name; what it prints is of no interest here."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), suppress(SystemExit):
        app([verb, session, *(["--out", os.devnull] if verb == "export" else [])])


def peak() -> int:
    """KiB; that of getrusage would be its parent's too."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])


if __name__ == "__main__":
    if sys.argv[1] in ("verify", "export"):
        command(*sys.argv[1:])
    else:
        asyncio.run(read(*sys.argv[1:]))
    sys.stdout.write(str(peak()))
