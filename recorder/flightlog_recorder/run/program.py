"""The program that a job runs: a process group of its own, whose end is the end of all in it."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from flightlog_recorder.embedded.guard import ending_with
from flightlog_recorder.run.tail import Tail

PIPE_PATIENCE = 1.0  # seconds for stderr to end with its program; a daemon may hold it open
_CHUNK = 65_536


class Program:
    """One running program. Its stderr passes through, and its last lines are kept.

    In a group of its own, Ctrl-C in a terminal reaches us alone: what it gets, we forwarded. A
    terminal's stdin is not passed on, as a scheduled job has none. When we are killed it is told to
    stop (Linux), and so suspends its session.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, lines: int
    ) -> None:
        """Start it. Raises OSError when it cannot be."""
        self._process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL if sys.stdin is not None and sys.stdin.isatty() else None,
            stderr=subprocess.PIPE,
            process_group=0,
            preexec_fn=ending_with(os.getpid(), signal.SIGTERM),  # noqa: PLW1509  one system call
        )
        self.tail = Tail(lines)
        self._pump = threading.Thread(target=self._pass_on, daemon=True)
        self._pump.start()
        self._ended = asyncio.create_task(self._end())

    def send(self, number: signal.Signals) -> None:
        """Send it a signal: to the program alone, as its tools are its own to stop."""
        if not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it and all that it started."""
        if not self._ended.done():
            self._kill_group()

    async def ended(self) -> int:
        """Wait for its end; the exit code, or minus the signal that killed it.

        What it started and left behind in its group is killed then.
        """
        return await asyncio.shield(self._ended)

    async def _end(self) -> int:
        await asyncio.to_thread(os.waitid, os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self._kill_group()  # before it is reaped, so that its group's number is nobody else's
        code = self._process.wait()
        await asyncio.to_thread(self._pump.join, PIPE_PATIENCE)
        return code

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _pass_on(self) -> None:
        if self._process.stderr is None:
            return
        while data := os.read(self._process.stderr.fileno(), _CHUNK):
            self.tail.take(data)
            with contextlib.suppress(OSError, ValueError):  # who reads ours may have gone
                sys.stderr.buffer.write(data)
                sys.stderr.flush()
