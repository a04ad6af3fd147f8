"""Being told to stop: a signal suspends the sessions that are open here and ends the process.

An eviction is no cancellation: the work stops, its calls stay in flight, and whoever resumes rules
them. A signal is taken only where Python's own default would have ended the process: a handler of
the harness, or of a server that it runs in, stays in charge and may call `Session.suspend`.
"""

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from signal import Signals
from types import FrameType
from typing import Any, Protocol

from flightlog.errors import FlightlogError, Suspended
from flightlog.running.journal import CLOSING_SECONDS

SIGNALS = (Signals.SIGTERM, Signals.SIGINT)
_KILLED = 128  # plus the signal's number: the exit status after a second signal

_Handler = Callable[[int, FrameType | None], Any] | int | None
_log = logging.getLogger("flightlog")


class Stoppable(Protocol):
    """What a session does when its process is told to stop."""

    id: str

    def halt(self) -> None:
        """Cancel what runs; its calls stay in flight."""
        ...

    async def suspend(self, reason: str = ...) -> None:
        """Record that the session waits."""
        ...


class Open:
    """A block to be left: a session's, or a connection's (which has no session).

    Its caller is a task, or else a thread without a loop.
    """

    def __init__(self, signals: Iterable[Signals], task: "asyncio.Task[Any] | None" = None) -> None:
        self.signals, self.task = frozenset(signals), task
        self.session: Stoppable | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.told: Signals | None = None
        self.left = asyncio.Event()

    def watch(self, session: Stoppable | None, loop: asyncio.AbstractEventLoop) -> None:
        """This is the session, and the loop on which it lives."""
        self.session, self.loop = session, loop

    def tell(self, told: Signals) -> None:
        """Leave it soon; takes no lock, so that a signal handler may call it."""
        if self.task is None or not self.task.done():
            self.told = told
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self._stop, told.name)

    def _stop(self, reason: str) -> None:
        if self.session is not None:
            self.session.halt()
            _kept.add(suspending := asyncio.create_task(_suspend(self.session, reason)))
            suspending.add_done_callback(_kept.discard)
        if self.task is not None:
            self.task.cancel()

    def end(self) -> BaseException:
        """What ends the process: success after an eviction, Python's own word for a Ctrl-C."""
        return KeyboardInterrupt() if self.told is Signals.SIGINT else SystemExit(0)


class _Process:
    """The blocks that are open in this process, and the signal handlers it has replaced."""

    def __init__(self) -> None:
        self.open: list[Open] = []
        self.replaced: dict[Signals, _Handler] = {}

    def forked(self) -> None:
        """Be a fork, which has none of its parent's sessions and dies of a signal as others do."""
        self.open.clear()
        _uninstall()


_process = _Process()
_kept: set[asyncio.Task[None]] = set()


@asynccontextmanager
async def heeding(session: Stoppable, signals: Iterable[Signals]) -> AsyncGenerator[None]:
    """Suspend the session when a signal comes, and leave the block, whatever the harness does."""
    if not (wanted := frozenset(signals)) or not _in_main_thread():
        yield
        return
    async with _left_when_told(wanted, session) as here:
        yield
    if here.told is not None:
        if _ends_with_connection(here):
            raise asyncio.CancelledError from None
        raise here.end() from None


@asynccontextmanager
async def ending() -> AsyncGenerator[None]:
    """End the process once the sessions of a connection are left because of a signal."""
    if not _in_main_thread():
        yield
        return
    async with _left_when_told((), None) as here:
        yield
    if here.told is not None:
        raise here.end() from None


@contextmanager
def heeding_here(signals: Iterable[Signals]) -> Generator[Open]:
    """Heed them for a thread without a loop: the handler raises what ends the process.

    Python runs handlers in the main thread alone, so a session of another one is only suspended.
    """
    here = Open(signals)
    if not here.signals:
        yield here
        return
    with _registered(here):
        yield here
        if here.told is not None and _in_main_thread():
            raise here.end() from None


@asynccontextmanager
async def _left_when_told(
    signals: Iterable[Signals], session: Stoppable | None
) -> AsyncGenerator[Open]:
    here = Open(signals, asyncio.current_task())
    here.watch(session, asyncio.get_running_loop())
    with _registered(here):
        try:
            yield here
        except (Suspended, asyncio.CancelledError, BaseExceptionGroup) as exc:
            if here.told is None or not _is_stop(exc):
                raise
        finally:
            here.left.set()
        if here.told is not None and session is None:
            await _sessions_left(here)


@contextmanager
def _registered(here: Open) -> Generator[None]:
    _process.open.append(here)
    try:
        _install(here.signals)
        yield
    finally:
        if here in _process.open:  # a fork has forgotten it
            _process.open.remove(here)
        _uninstall()


async def _suspend(session: Stoppable, reason: str) -> None:
    try:
        async with asyncio.timeout(CLOSING_SECONDS):
            await session.suspend(reason)
    except (FlightlogError, TimeoutError) as exc:
        why = f"{type(exc).__name__}; it resumes from its last event all the same"
        _log.warning("session %s could not record its %s: %s", session.id, reason, why)


async def _sessions_left(here: Open) -> None:
    """Wait for the sessions of other tasks: they need the connection to record what they are."""
    others = [each for each in _process.open if each.session and each.loop is here.loop]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSING_SECONDS):
            for each in others:
                await each.left.wait()


def _ends_with_connection(here: Open) -> bool:
    """Whether the connection's own block ends the process, in the task that opened it."""
    connections = [each for each in _process.open if each.session is None]
    return any(each.told is not None and each.loop is here.loop for each in connections)


def _is_stop(exc: BaseException) -> bool:
    """Whether there is nothing in it but what a stop raises."""
    kinds = (Suspended, asyncio.CancelledError)
    if isinstance(exc, BaseExceptionGroup):
        return exc.split(kinds)[1] is None
    return isinstance(exc, kinds)


def _caught(number: int, frame: FrameType | None) -> None:
    told = Signals(number)
    if not any(told in each.signals for each in _process.open):
        _pass_on(told, frame)
        return
    if any(each.told is not None for each in _process.open):
        os._exit(_KILLED + number)  # a signal's default does nothing to pid 1 of a container
    waiting = list(_process.open)
    for each in waiting:
        each.tell(told)
    if all(each.task is None for each in waiting):
        raise waiting[0].end() from None


def _pass_on(told: Signals, frame: FrameType | None) -> None:
    """Nothing is open here any more: do what would have been done without us."""
    before = _process.replaced.get(told, signal.SIG_DFL)
    if callable(before):
        before(told, frame)
    else:
        signal.signal(told, before)
        signal.raise_signal(told)


def _install(signals: Iterable[Signals]) -> None:
    if not _in_main_thread():
        return  # Python allows it nowhere else
    for each in signals:
        if _is_default(before := signal.getsignal(each)):
            _process.replaced[each] = before
            signal.signal(each, _caught)


def _uninstall() -> None:
    """Put back what no session needs any more."""
    if not _in_main_thread():
        return
    heeded = {each for here in _process.open for each in here.signals}
    for each in [each for each in _process.replaced if each not in heeded]:
        before = _process.replaced.pop(each)
        if signal.getsignal(each) is _caught:
            signal.signal(each, before)


def _is_default(handler: _Handler) -> bool:
    """Whether it is what Python or `asyncio.run` installs by itself."""
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    method = getattr(handler, "func", None)  # asyncio.run's is a partial of its runner's method
    return isinstance(getattr(method, "__self__", None), asyncio.Runner)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.forked)
