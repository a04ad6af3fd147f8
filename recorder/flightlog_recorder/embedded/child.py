"""A child process that dies with its parent, even when the parent is killed with SIGKILL."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from flightlog_recorder import private
from flightlog_recorder.embedded import guard


class Child:
    """One running program, its output appended to a log file.

    Signals travel through the guard, which alone reaps the program: a recycled pid is never hit.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        hold: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start `command`; it keeps the file descriptors `hold` open while it lives.

        `environment` is set beside ours.
        """
        with private.append(log) as output:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                pass_fds=tuple(hold),
                env={**os.environ, **(environment or {})},
            )
        self._orders = _open(self._guard.stdin)
        self._answers = _open(self._guard.stdout)
        self.pid = int(self._answers.readline() or 0)

    @property
    def alive(self) -> bool:
        """Whether the program runs."""
        return self._guard.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program and return once it is sent; nothing when it is gone."""
        if self._orders.closed:
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(self._orders.fileno(), bytes([number]))
            self._answers.read(1)

    def wait(self, timeout: float) -> bool:
        """Wait until the program has ended; false when `timeout` seconds were not enough."""
        try:
            self._guard.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        self._close()
        return True

    def kill(self) -> None:
        """Kill the program with SIGKILL and wait until it is gone. Idempotent."""
        self._end(signal.SIGKILL, timeout=None)

    def stop(self, *, deadline: float) -> None:
        """Ask the program to end; kill it after `deadline` seconds. Idempotent."""
        self._end(signal.SIGTERM, timeout=deadline)

    def _end(self, number: signal.Signals, *, timeout: float | None) -> None:
        if self._orders.closed:
            return
        self.send(number)
        if timeout is not None and not self.wait(timeout):
            self.send(signal.SIGKILL)
        self._guard.wait()
        self._close()

    def _close(self) -> None:
        self._orders.close()
        self._answers.close()


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise TypeError("the guard was started without its pipes")
    return pipe
