"""Time and chance: the one place where the SDK takes either, so that a simulation can give both."""

import asyncio
import random
import secrets
import time
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Protocol


class Source(Protocol):
    """Where wall time and chance come from. A process has one; a simulation has one for each."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970; it may jump either way, so it orders nothing."""
        ...

    def bits(self, count: int) -> int:
        """Random bits that nobody can guess."""
        ...

    def fraction(self) -> float:
        """A random number in [0, 1); not a secret."""
        ...


class _System:
    def wall_ns(self) -> int:
        return time.time_ns()

    def bits(self, count: int) -> int:
        return secrets.randbits(count)

    def fraction(self) -> float:
        return random.random()  # noqa: S311


SOURCE: ContextVar[Source] = ContextVar("flightlog_source", default=_System())  # noqa: B039 it holds nothing


def elapsed() -> float:
    """Seconds on the running loop's clock, which never jumps back: for deadlines and durations."""
    return asyncio.get_running_loop().time()


def wall_ns() -> int:
    """Nanoseconds since 1970, for people and for ids that sort."""
    return SOURCE.get().wall_ns()


def now() -> datetime:
    """The wall time in UTC, to the microsecond."""
    seconds, left = divmod(wall_ns(), 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=left // 1_000)


def bits(count: int) -> int:
    """Random bits that nobody can guess."""
    return SOURCE.get().bits(count)


def fraction() -> float:
    """A random number in [0, 1); not a secret."""
    return SOURCE.get().fraction()
