"""The data directory: private to its user, and for one process at a time."""

import fcntl
import os
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flightlog_recorder.embedded.faults import AlreadyRunning, DataRefused

LOCK = "lock"
ORPHANS_DEADLINE = 10.0  # seconds in which the servers of a killed process must be gone
LOCK_POLL = 0.05  # seconds


@dataclass(frozen=True)
class Home:
    """A locked data directory. Whoever holds `lock` open, servers too, keeps others out."""

    path: Path
    lock: int


@contextmanager
def kept(path: Path) -> Generator[Home]:
    """Hold a data directory that outlives us; raises `AlreadyRunning` or `DataRefused`."""
    path = path.expanduser().absolute()
    _claim(path)
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _take(lock, path)
        path.chmod(0o700)
        os.truncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield Home(path, lock)
    finally:
        os.close(lock)


@contextmanager
def passing() -> Generator[Home]:
    """Hold a new data directory, removed at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="flightlog-", ignore_cleanup_errors=True) as path,
        kept(Path(path)) as home,
    ):
        yield home


def _claim(path: Path) -> None:
    """Make the directory, or see that it is empty or ours, before anything in it is touched."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = path.stat().st_uid
        foreign = not (path / LOCK).exists() and any(path.iterdir())
    except (FileExistsError, NotADirectoryError):
        raise DataRefused(path, "it is not a directory") from None
    except PermissionError as error:
        raise DataRefused(path, "permission denied") from error
    if owner != os.getuid():
        raise DataRefused(path, "it belongs to another user")
    if foreign:
        raise DataRefused(path, "it holds files that are not ours")


def _take(lock: int, path: Path) -> None:
    """Take the lock; the servers of a killed process may hold it for a moment."""
    deadline = time.monotonic() + ORPHANS_DEADLINE
    while not _try_lock(lock):
        pid = _owner(lock)
        if time.monotonic() > deadline or (pid and _lives(pid)):
            raise AlreadyRunning(path, pid)
        time.sleep(LOCK_POLL)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _owner(lock: int) -> int | None:
    written = os.pread(lock, 32, 0).strip()
    return int(written) if written.isdigit() else None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
