"""The `flightlog` command as its users have it: a process, its output, its exit code."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from flightlog_recorder.embedded import Servers
from tests.scripted import TENANT

PROGRAM = (sys.executable, "-m", "flightlog_recorder")


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output as one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Its output as JSON documents, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Running:
    """A command that goes on; its lines are read as they come."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def line(self) -> str:
        """Its next line of output; empty at the end."""
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().rstrip("\n")

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait; its exit code."""
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await self._process.wait()

    async def ended(self) -> Ran:
        """Wait for its end; what it wrote since."""
        out, err = await self._process.communicate()
        return Ran(self._process.returncode or 0, out.decode(), err.decode())


class Command:
    """Runs `flightlog` with an environment of its own."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = {**os.environ, **environ}

    async def __call__(self, *arguments: str) -> Ran:
        """Run to the end."""
        async with self.running(*arguments) as running:
            return await running.ended()

    @asynccontextmanager
    async def running(self, *arguments: str) -> AsyncGenerator[Running]:
        """Run for the length of a block."""
        process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            *arguments,
            env=self._environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield Running(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def flightlog(servers: Servers, *, redis: bool = True) -> Command:
    """The command, for the tenant of the tests."""
    environ = {"FLIGHTLOG_NATS_URL": servers.nats_url, "FLIGHTLOG_TENANT": TENANT}
    return Command(environ | ({"FLIGHTLOG_REDIS_URL": servers.redis_url} if redis else {}))
