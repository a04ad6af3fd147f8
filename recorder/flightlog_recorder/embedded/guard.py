"""Runs one program and ends it when its parent is gone; a script of the standard library alone.

Standard input is a pipe whose other end only the parent has. A byte in it is a signal for the
program, answered on standard output once sent (SIGSTOP: once it has stopped). The end of the pipe
means that the parent is gone, however it died. The first line of standard output is the program's
pid.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

PARENT_CHECK = 0.5  # seconds; a process forked by the parent may keep the pipe open after it
ORPHAN_GRACE = 3.0  # seconds between SIGTERM and SIGKILL once the parent is gone
LINUX_PR_SET_PDEATHSIG = 1  # linux/prctl.h
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def guard(parent: int, command: Sequence[str]) -> int:
    """Run `command` until it ends or the parent does; its exit code."""
    if os.getppid() != parent:
        return 1
    os.umask(0o077)
    wake = _wake_on_signals()
    program = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        close_fds=False,
        preexec_fn=ending_with(os.getpid(), signal.SIGKILL),  # noqa: PLW1509  one thread only
    )
    _tell_parent(f"{program.pid}\n")
    while program.poll() is None:
        orders = _next_orders(parent, wake)
        if orders is None:
            _put_down(program)
            break
        for number in orders:
            _send(program, number)
            _tell_parent(".")
    return program.wait() % 256


def _send(program: subprocess.Popen[bytes], number: int) -> None:
    program.send_signal(number)
    if number == signal.SIGSTOP and hasattr(os, "waitid"):  # macOS has it from Python 3.13 on
        # Threads on other processors still answer for a moment.
        os.waitid(os.P_PID, program.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def _tell_parent(word: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, word.encode())


def _wake_on_signals() -> int:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGCHLD, *FORWARDED):
        signal.signal(number, lambda *_: None)
    return reader


def _next_orders(parent: int, wake: int) -> bytes | None:
    """The signals to send now, one a byte; None when the parent is gone."""
    readable, _, _ = select.select([0, wake], [], [], PARENT_CHECK)
    if os.getppid() != parent:
        return None
    if wake in readable:
        return bytes(number for number in os.read(wake, 64) if number in FORWARDED)
    if 0 in readable:
        return os.read(0, 1) or None
    return b""


def _put_down(program: subprocess.Popen[bytes]) -> None:
    program.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        program.wait(ORPHAN_GRACE)
    program.kill()


def ending_with(parent: int, number: int) -> Callable[[], None] | None:
    """What a program does before it starts, to get a signal when its parent dies (Linux).

    The kernel ties this to the thread that forked: it must be one that lives as long as the parent.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def before_exec() -> None:
        prctl(LINUX_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)

    return before_exec


if __name__ == "__main__":
    raise SystemExit(guard(int(sys.argv[1]), sys.argv[2:]))
