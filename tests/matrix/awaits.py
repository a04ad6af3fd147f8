"""Counts the await points of Flightlog's own tasks, and kills the process at one of them.

A hook that counts, not one that sleeps: a coroutine of ours that suspends is one await point. Where
it happened is written down before the process kills itself.
"""

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

_OURS = (f"{os.sep}flightlog{os.sep}", f"{os.sep}flightlog_recorder{os.sep}purge{os.sep}")


class Fate:
    """Which await point is the last, and the file that says where that was."""

    def __init__(self, last: int, told: Path) -> None:
        self.last, self.told = last, told
        self.count = 0

    def passed(self, place: str) -> None:
        """One more await point; the last one ends the process, by SIGKILL."""
        self.count += 1
        if self.count == self.last:
            self.told.write_text(place)
            os.kill(os.getpid(), signal.SIGKILL)


class _Watched(Coroutine[Any, Any, Any]):
    """A task's coroutine, seen at each suspension."""

    def __init__(self, inner: Coroutine[Any, Any, Any], fate: Fate) -> None:
        self._inner, self._fate = inner, fate

    def send(self, value: Any) -> Any:
        awaited = self._inner.send(value)
        if (place := _place(self._inner)) is not None:
            self._fate.passed(place)
        return awaited

    def throw(self, *thrown: Any) -> Any:
        return self._inner.throw(*thrown)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Any:
        return self._inner.__await__()


def _place(coroutine: Any) -> str | None:
    """The innermost function of ours that is suspended, as `module.function`; None for others."""
    found = None
    while coroutine is not None:
        frame: FrameType | None = getattr(coroutine, "cr_frame", None) or getattr(
            coroutine, "ag_frame", None
        )
        if frame is not None and any(part in frame.f_code.co_filename for part in _OURS):
            found = f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
    return found


def watch(loop: asyncio.AbstractEventLoop, fate: Fate) -> None:
    """Watch every task that is made from now on."""

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **named: Any) -> Any:
        return asyncio.Task(_Watched(coroutine, fate), loop=loop, **named)

    loop.set_task_factory(factory)
